#!/bin/sh
# Measures the table of an article that compares AIO with io_uring, on this machine: 4 KiB random
# reads on kaio, uring and uring with SQPOLL, 1 to 256 in flight, direct and buffered, in the
# article's columns. Buffered runs start with a cold page cache, as fio's do. Latencies are
# microseconds: average, p99, p99.5, p99.99.
#
# RUNTIME=15s measures as long as the article did. REPEAT, SIZE and RINGWAY (the command) may be
# set; arguments are passed to `ringway bench` (`--scratch /data`).
set -eu
cd "$(dirname "$0")/.."
if [ -z "${RINGWAY:-}" ]; then
    ./scripts/setup.sh rust cc python3
    cargo build --quiet --release -p ringway-cli --bin ringway
    RINGWAY=${CARGO_TARGET_DIR:-target}/release/ringway
fi

json=$(mktemp -d)
trap 'rm -rf "$json"' EXIT
# measure NAME OPTION...: the rows of one configuration.
measure() {
    name=$1
    shift
    "$RINGWAY" bench --rw randread --bs 4k --jobs 1 --cache cold \
        --runtime "${RUNTIME:-15s}" --repeat "${REPEAT:-3}" --size "${SIZE:-1g}" \
        --json "$json/$name" "$@" >&2
}
measure 1 --backend kaio --direct 1 --depth 1,32,128,256 "$@"
measure 2 --backend uring --direct 1 --depth 1,32,128,256 "$@"
measure 3 --backend uring --sqpoll 1 --direct 1 --depth 1,32,128,256 "$@"
measure 4 --backend uring --sqpoll 1 --direct 0 --depth 1,32,128 "$@"

python3 - "$json"/? <<'END'
import json, sys

sqpoll = "URING-RandRead(4K) sq_poll"
names = ["AIO - RandRead(4K)", "URING-RandRead(4K)", sqpoll, sqpoll]
print("| |Direct|Depth|Jobs|QPS|Bandwidth|Latency(avg:99:99.5:99.99 us)|")
print("|---|---|---|---|---|---|---|")
for name, path in zip(names, sys.argv[1:]):
    for job in json.load(open(path))["jobs"]:
        read, ours = job["read"], job["ringway"]
        row = f"|{name}|{int(ours['direct'])}|{ours['depth']}|{ours['jobs']}|"
        percentiles = read["clat_ns"].get("percentile")
        if not percentiles:
            print(f"{row}did not run: {'; '.join(ours['notes'])}|||")
            continue
        times = [read["clat_ns"]["mean"]]
        # A percentile is missing if there are too few samples.
        times += [percentiles.get(p) for p in ("99.000000", "99.500000", "99.990000")]
        latency = ":".join("-" if time is None else f"{time / 1e3:.0f}" for time in times)
        print(f"{row}{read['iops'] / 1e3:.1f}k|{read['bw_bytes'] / 1e6:.0f}M|{latency}|")
END
