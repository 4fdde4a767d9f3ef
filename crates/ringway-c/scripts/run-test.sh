#!/bin/sh
# run-test.sh MODE SOURCE PROGRAM [CASES]: runs one test in a directory of its own below the build
# directory, which is on a real disk.
#
# MODE is plain, sanitized or valgrind. CASES, the directory of the cases that all bindings share,
# is passed to the test. The first lines of the source may contain:
#	/* valgrind: no, because ... */       not run with valgrind, and why
#	/* sanitized: no, because ... */      not run with sanitizers, and why
set -eu
mode=$1 source=$2 program=$3 cases=${4:-}
[ -z "$cases" ] || cases=$(cd "$cases" && pwd)

comment() {
    sed -n "1,12s|^/\* $1: \(.*\) \*/\$|\1|p" "$source"
}
why=$(comment "$mode" | sed -n 's/^no, because //p')
if [ -n "$why" ]; then
    echo "$source: not run in mode $mode, because $why"
    exit 0
fi
name=$(basename "$program")
scratch=$(dirname "$(dirname "$program")")/scratch/$name.$mode
rm -rf "$scratch"
mkdir -p "$scratch"
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
cd "$scratch"
export TMPDIR="$PWD"

under=
case $mode in
    valgrind)
        # valgrind supports neither io_uring nor the ring that Linux AIO maps, and runs one thread
        # at a time.
        export RINGWAY_BACKEND=threads RINGWAY_TEST_BACKENDS=threads
        under="valgrind --quiet --error-exitcode=99 --fair-sched=yes --leak-check=full"
        under="$under --show-leak-kinds=definite --errors-for-leak-kinds=definite"
        ;;
esac
# shellcheck disable=SC2086 # split into words
if timeout -k 10 "${TEST_TIMEOUT:-600}" $under "$program" ${cases:+"$cases"} \
    >output 2>&1; then
    grep '^skipped' output || true
    echo "$name ($mode): passed"
    rm -rf "$PWD"
else
    code=$?
    echo "--- FAIL: $name ($mode)"
    cat output
    echo "$name ($mode): FAILED with exit code $code, in $scratch" >&2
    exit 1
fi
