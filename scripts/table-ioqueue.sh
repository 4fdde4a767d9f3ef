#!/bin/sh
# The table of ioqueue's README on this machine: random direct reads of 512 bytes to 256 KiB, 32 in flight, each backend,
# as many requests as there, in its columns. rtime, utime, stime and cpu are milliseconds; us/op is the time of a
# request from submission to completion, as there: rtime * depth / reqs.
#
# SIZE=8g takes as much of the disk as the original; BACKENDS, REPEAT and RINGWAY (the command) may be set; options are handed on to
# `ringway bench` (`--scratch /data`).
set -eu
cd "$(dirname "$0")/.."
if [ -z "${RINGWAY:-}" ]; then
    ./scripts/setup.sh rust cc
    cargo build --quiet --release -p ringway-cli --bin ringway
    RINGWAY=${CARGO_TARGET_DIR:-target}/release/ringway
fi

csv=$(mktemp)
trap 'rm -f "$csv"' EXIT
while read -r requests sizes; do
    "$RINGWAY" bench --backend "${BACKENDS:-uring,kaio,threads}" \
        --rw randread --direct 1 --depth 32 --bs "$sizes" --requests "$requests" --ramp 0 \
        --repeat "${REPEAT:-3}" --size "${SIZE:-1g}" --csv - "$@" >>"$csv"
done <<LIST
262144 512,1k,2k
131072 4k,8k,16k
65536 32k,64k,128k
32768 256k
LIST

# Columns by their headings. None before the last can hold a comma here.
awk -F, '
    $1 == "name" { for (i = 1; i <= NF; i++) column[$i] = i; next }
    $column["is_median"] == "true" {
        backend = $column["backend"]
        if (!(backend in rows)) order[++backends] = backend
        reqs = $column["ops"]
        real = $column["real_seconds"]
        user = $column["user_seconds"]
        cpu = user + $column["system_seconds"]
        rows[backend] = rows[backend] sprintf("%-8s%-8d%-8d%-8d%-8d%-8d%-8d%-8d%-8.0f%-8.0f%.2f\n", backend, reqs,
            $column["block_size_bytes"], $column["depth"], real * 1e3, user * 1e3, (cpu - user) * 1e3, cpu * 1e3,
            real * $column["depth"] / reqs * 1e6, $column["ops_per_second"], $column["bytes_per_second"] / 1048576)
    }
    $column["is_median"] == "" { print "did not run: " $column["backend"] ": " $NF > "/dev/stderr" }
    END {
        for (i = 1; i <= backends; i++) {
            if (i > 1) print ""
            print "backend reqs    bufsize depth   rtime   utime   stime   cpu     us/op   op/s    MB/s"
            printf "%s", rows[order[i]]
        }
    }
' "$csv"
