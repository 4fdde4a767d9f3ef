#!/bin/sh
# check-links.sh LIBRARIES SCRATCH: programs for the original ioqueue, compiled as C89, C11 and C++ and linked by the lines that they had,
# with the shared and the static libraries, and run on each backend. Both are absolute paths.
set -eu
libraries=$1 scratch=$2
here=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$scratch"
mkdir -p "$scratch/shared" "$scratch/static"
cd "$scratch"
export TMPDIR="$scratch"
# As they are installed; and as they are where there are only static ones.
cp -P "$libraries"/libringway.so* "$libraries"/libioqueue*.so* shared
cp "$libraries"/libioqueue*.a static

compile() {
    case $1 in
        c89) shift && cc -std=c89 -Wall -Wextra -Werror "$@" ;;
        c11) shift && cc -std=c11 -Wall -Wextra -Werror "$@" ;;
        c++) shift && c++ -x c++ -Wall -Wextra -Werror "$@" ;;
    esac
}

count=0
for language in c89 c11 c++; do
    for program in random_reads poll_server; do
        compile $language -O -I "$here/include" -c "$here/tests/ioqueue_$program.c" -o $program.o
        for form in shared static; do
            for link in "-lioqueue" "-lioqueue -lrt" "-lioqueuemt -lpthread"; do
                case $language in c++) driver=c++ ;; *) driver=cc ;; esac
                # shellcheck disable=SC2086 # words, each of them
                $driver $program.o -L$form $link -o $program
                case $link in *mt*) backends=threads ;; *) backends="uring kaio threads" ;; esac
                for backend in $backends; do
                    if ! RINGWAY_BACKEND=$backend LD_LIBRARY_PATH=$scratch/shared timeout 120 ./$program >output 2>&1; then
                        if grep -q '^ioqueue_init: ' output; then
                            echo "skipped: $program on $backend: $(cat output)"
                            [ -z "${CI:-}" ] || exit 1
                            continue
                        fi
                        echo "$program ($language, $form, $link, $backend) fails:" >&2
                        cat output >&2
                        exit 1
                    fi
                    count=$((count + 1))
                done
            done
        done
    done
done
# What has only the static library in it needs no other.
if objdump -p poll_server | grep 'NEEDED.*\(ringway\|ioqueue\)'; then exit 1; fi
cd / && rm -rf "$scratch"
echo "ioqueue-links: $count runs passed"
