#!/bin/sh
# check-links.sh LIBRARIES SCRATCH: compiles programs for the original ioqueue as C89, C11 and C++,
# links them with their original link lines, shared and static, and runs them on each backend. Both
# arguments are absolute paths.
set -eu
libraries=$1 scratch=$2
here=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$scratch"
mkdir -p "$scratch/shared" "$scratch/static"
cd "$scratch"
export TMPDIR="$scratch"
# `shared` is like an installation, `static` like one with static libraries only.
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
    for program in poll_server; do
        compile $language -O -I "$here/include" -c "$here/tests/ioqueue_$program.c" -o $program.o
        for form in shared static; do
            for link in "-lioqueue" "-lioqueue -lrt" "-lioqueuemt -lpthread"; do
                case $language in c++) driver=c++ ;; *) driver=cc ;; esac
                # shellcheck disable=SC2086 # split into words
                $driver $program.o -L$form $link -o $program
                case $link in *mt*) backends=threads ;; *) backends="uring kaio threads" ;; esac
                for backend in $backends; do
                    if ! RINGWAY_BACKEND=$backend LD_LIBRARY_PATH=$scratch/shared \
                        timeout 120 ./$program >output 2>&1; then
                        if grep -q '^ioqueue_init: ' output; then
                            echo "skipped: $program on $backend: $(cat output)"
                            [ -z "${CI:-}" ] || exit 1
                            continue
                        fi
                        echo "$program ($language, $form, $link, $backend) failed:" >&2
                        cat output >&2
                        exit 1
                    fi
                    count=$((count + 1))
                done
            done
        done
    done
done
# A program linked with the static library needs no other.
if objdump -p poll_server | grep 'NEEDED.*\(ringway\|ioqueue\)'; then exit 1; fi
cd / && rm -rf "$scratch"
echo "ioqueue-links: $count runs passed"
