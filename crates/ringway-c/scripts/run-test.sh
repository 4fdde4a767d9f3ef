#!/bin/sh
# run-test.sh HOW SOURCE PROGRAM [CASES]: runs one test in a folder of its own, below the build's, which is on a real disk.
#
# HOW is plain, sanitized or valgrind. CASES, the folder of the cases that all doors share, is the test's argument. Among the first lines
# of the source may be:
#	/* run: VARIABLE=VALUE ... */             the environment that it wants
#	/* valgrind: no, because ... */           valgrind cannot run it, and why
#	/* sanitized: no, because ... */          likewise
set -eu
how=$1 source=$2 program=$3 cases=${4:-}
[ -z "$cases" ] || cases=$(cd "$cases" && pwd)

comment() {
    sed -n "1,12s|^/\* $1: \(.*\) \*/\$|\1|p" "$source"
}
why=$(comment "$how" | sed -n 's/^no, because //p')
if [ -n "$why" ]; then
    echo "$source: not $how, because $why"
    exit 0
fi
environment=$(comment run)
name=$(basename "$program")
scratch=$(dirname "$(dirname "$program")")/scratch/$name.$how
rm -rf "$scratch"
mkdir -p "$scratch"
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
cd "$scratch"
export TMPDIR="$PWD"

under=
case $how in
    valgrind)
        # It knows neither io_uring nor the ring that Linux AIO maps, and runs one thread at a time.
        export RINGWAY_BACKEND=threads RINGWAY_TEST_BACKENDS=threads
        under="valgrind --quiet --error-exitcode=99 --fair-sched=yes --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite"
        ;;
esac
# shellcheck disable=SC2086 # words, each of them
if env $environment timeout -k 10 "${TEST_TIMEOUT:-600}" $under "$program" ${cases:+"$cases"} >output 2>&1; then
    grep '^skipped' output || true
    echo "$name ($how): passed"
    rm -rf "$PWD"
else
    code=$?
    cat output
    echo "$name ($how): FAILED with $code, in $scratch" >&2
    exit 1
fi
