#!/bin/sh
# run-examples.sh PROGRAMS SCRATCH: runs the examples on each backend and checks their results with
# cmp and Python. PROGRAMS and SCRATCH are absolute paths.
set -eu
programs=$1 scratch=$2
client=$(cd "$(dirname "$0")" && pwd)/server-client.py
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

# An odd size, a hole in the middle, and a hole at the end.
head -c 3333333 /dev/urandom >data
cp data holes
dd if=data of=holes bs=1024 seek=20480 count=100 conv=notrunc status=none
truncate -s 40000001 holes
: >empty
truncate -s 5000000 hole

fail() {
    echo "$1 (RINGWAY_BACKEND=$RINGWAY_BACKEND)" >&2
    exit 1
}
# Each available backend.
for RINGWAY_BACKEND in uring kaio threads; do
    export RINGWAY_BACKEND
    if ! "$programs/read_file" empty >output 2>&1; then
        echo "skipped: the examples on $RINGWAY_BACKEND: $(head -n 1 output)"
        [ -z "${CI:-}" ] || fail "a skip is an error where CI is set"
        continue
    fi

    [ "$("$programs/read_file" data)" = "submitted=51, completed=51, bytes=3333333" ] ||
        fail "read_file prints wrong counts"
    ! "$programs/read_file" missing 2>/dev/null || fail "read_file succeeds without a file"

    for file in data holes empty hole; do
        rm -f copy
        "$programs/cp" $file copy || fail "cp fails"
        cmp $file copy || fail "cp made a different copy"
    done
    "$programs/cp" holes copy
    [ "$(du -k copy | cut -f 1)" -le $(($(du -k holes | cut -f 1) + 64)) ] ||
        fail "cp filled a hole"
    "$programs/cp" empty copy && cmp empty copy || fail "cp left old content"
    ! "$programs/cp" missing copy 2>/dev/null || fail "cp succeeds without a file"
    ! "$programs/cp" data data 2>/dev/null || fail "cp copies a file to itself"
    [ "$(wc -c <data)" -eq 3333333 ] || fail "cp truncated a file that was to be copied to itself"
    if [ -c /dev/full ]; then
        ! "$programs/cp" data /dev/full 2>output || fail "cp ignores a full device"
    fi

    "$programs/multi_read" data 0:1 3333000:1000 70000:65536 5:0 >output || fail "multi_read fails"
    { head -c 1 data; tail -c +3333001 data; tail -c +70001 data | head -c 65536; } >wanted
    cmp wanted output || fail "multi_read read wrong data"
    ! "$programs/multi_read" data 9223372036854775807:10 0:5 >output 2>/dev/null ||
        fail "multi_read ignores a bad range"

    "$programs/server" "$scratch/socket" "$scratch" 2>server-errors &
    server=$!
    python3 "$client" "$scratch/socket" "$scratch" || {
        kill $server
        cat server-errors >&2
        fail "the client of server failed"
    }
    kill $server
    wait $server || { cat server-errors >&2; fail "server exited with an error"; }
    [ ! -e socket ] || fail "server left its socket"
done
cd / && rm -rf "$scratch"
echo "examples: passed"
