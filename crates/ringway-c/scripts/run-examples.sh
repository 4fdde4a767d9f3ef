#!/bin/sh
# run-examples.sh PROGRAMS SCRATCH: runs the examples on each backend, and compares what they do with what cmp, dd and Python say.
# PROGRAMS and SCRATCH are absolute paths.
set -eu
programs=$1 scratch=$2
client=$(cd "$(dirname "$0")" && pwd)/server-client.py
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

# A size that is a multiple of nothing, a hole in the middle, and one at the end.
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
# Each backend that there is here; a refused one is told by the tests.
for RINGWAY_BACKEND in uring kaio threads; do
    export RINGWAY_BACKEND
    if ! "$programs/read_file" empty >output 2>&1; then
        echo "skipped: the examples on $RINGWAY_BACKEND: $(head -n 1 output)"
        [ -z "${CI:-}" ] || fail "a skip that CI does not expect"
        continue
    fi

    [ "$("$programs/read_file" data)" = "submitted=51, completed=51, bytes=3333333" ] || fail "read_file does not count right"
    ! "$programs/read_file" missing 2>/dev/null || fail "read_file reads what is not there"

    for file in data holes empty hole; do
        rm -f copy
        "$programs/cp" $file copy || fail "cp fails"
        cmp $file copy || fail "cp copies something else"
    done
    "$programs/cp" holes copy
    [ "$(du -k copy | cut -f 1)" -le $(($(du -k holes | cut -f 1) + 64)) ] || fail "cp fills holes"
    "$programs/cp" empty copy && cmp empty copy || fail "cp leaves what was there before"
    ! "$programs/cp" missing copy 2>/dev/null || fail "cp copies what is not there"
    ! "$programs/cp" data data 2>/dev/null || fail "cp copies a file onto itself"
    [ "$(wc -c <data)" -eq 3333333 ] || fail "cp emptied a file that it was to copy onto itself"
    if [ -c /dev/full ]; then
        ! "$programs/cp" data /dev/full 2>output || fail "cp does not mind a full device"
    fi

    "$programs/multi_read" data 0:1 3333000:1000 70000:65536 5:0 >output || fail "multi_read fails"
    { head -c 1 data; tail -c +3333001 data; tail -c +70001 data | head -c 65536; } >wanted
    cmp wanted output || fail "multi_read reads something else"
    ! "$programs/multi_read" data 9223372036854775807:10 0:5 >output 2>/dev/null || fail "multi_read does not mind a bad range"

    "$programs/server" "$scratch/socket" "$scratch" 2>server-errors &
    server=$!
    python3 "$client" "$scratch/socket" "$scratch" || { kill $server; cat server-errors >&2; fail "the server's client is not content"; }
    kill $server
    wait $server || { cat server-errors >&2; fail "the server does not end well"; }
    [ ! -e socket ] || fail "the server leaves its socket"
done
cd / && rm -rf "$scratch"
echo "examples: passed"
