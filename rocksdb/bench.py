#!/usr/bin/env python3
"""Measures db_bench with and without ringway: keys per second and CPU time per key.

Creates databases in a temporary directory below --dir, which must be on a disk that supports direct
I/O, and removes them at the end. Each job runs --runs times without and with the shared object
preloaded, alternately and on the same database. It prints records, of which `make bench` makes
tables (crates/ringway-measure/src/records.rs). CPU time is the user and system time of all threads
of db_bench. Nothing else should run on the machine meanwhile.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

# The options of every job. There is no block cache, so that every key is read from a file.
COMMON = ["--use_existing_db", "--value_size=400", "--cache_size=0", "--threads=1"]
DIRECT = ["--use_direct_reads"]
BATCHED = ["--benchmarks=multireadrandom", "--multiread_batched"]
SEEK = ["--benchmarks=seekrandom", "--seek_nexts=1000"]

# Title, database, options, and further options with ringway. docs/performance.md shows this table.
JOBS = [
    ("MultiGet of 32, direct, one file", "one", BATCHED + ["--batch_size=32"] + DIRECT, []),
    ("MultiGet of 32, direct, files of 64 MiB", "many", BATCHED + ["--batch_size=32"] + DIRECT, []),
    ("MultiGet of 1, direct", "one", BATCHED + ["--batch_size=1"] + DIRECT, []),
    ("Get, direct", "one", ["--benchmarks=readrandom"] + DIRECT, []),
    ("MultiGet of 32, cached by the kernel", "one", BATCHED + ["--batch_size=32"], []),
    ("Get, cached by the kernel", "one", ["--benchmarks=readrandom"], []),
    ("seek and 1000 next, direct, async_io with ringway", "one", SEEK + DIRECT, ["--async_io"]),
    ("seek and 1000 next, cached, async_io with ringway", "one", SEEK, ["--async_io"]),
]
DATABASES = {
    "one": ["--target_file_size_base=8589934592", "--write_buffer_size=8589934592"],
    "many": [],
}
KEYS = "keys/s"
CPU = "CPU µs per key"
# The contestant without ringway.
ALONE = "RocksDB alone"
RESULT = re.compile(
    r"^(\w+) *: *[\d.]+ micros/op (\d+) ops/sec ([\d.]+) seconds (\d+) operations", re.MULTILINE
)


def db_bench(options, preload=None, uri=None):
    """Runs db_bench and returns operations per second, operations and CPU seconds."""
    environment = dict(os.environ)
    command = ["db_bench", *options]
    if preload:
        environment["LD_PRELOAD"] = preload
        command.append("--fs_uri=" + uri)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read().decode(errors="replace").replace("\r", "\n")
    result = RESULT.search(text)
    if status != 0 or result is None:
        sys.exit(f"{' '.join(command)}: wait status {status}\n{text[-2000:]}")
    return float(result[2]), int(result[4]), usage.ru_utime + usage.ru_stime


def fill(name, directory, keys):
    """Creates a database that contains each key once."""
    path = os.path.join(directory, name)
    print(f"filling {name} ...", file=sys.stderr)
    options = [f"--db={path}", f"--num={keys}", "--value_size=400", "--disable_wal"]
    db_bench(["--benchmarks=fillseq,compact", *options, *DATABASES[name]])
    files = [os.path.join(path, name) for name in os.listdir(path)]
    for file in files:  # into the page cache, for the buffered jobs
        with open(file, "rb") as contents:
            while contents.read(1 << 20):
                pass
    tables = [os.path.getsize(file) for file in files if file.endswith(".sst")]
    print(f"{name}: {len(tables)} tables, {sum(tables) / 1e6:.0f} MB", file=sys.stderr)


def keys_of(operations, options):
    """The number of keys read; a seek reads each key that it walks over."""
    return operations * 1001 if SEEK[0] in options else operations


def record(kind, content):
    print(json.dumps({kind: content}), flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--object", required=True, help="libringway_rocksdb.so")
    add("--dir", default=tempfile.gettempdir(), help="directory for the databases, about 1 GB")
    add("--keys", type=int, default=2_000_000)
    add("--runs", type=int, default=5)
    add("--seconds", type=int, default=4, help="length of a run")
    add("--uri", action="append", help="file system to compare; may be repeated; ringway://")
    add("--only", default="", help="only jobs whose titles contain this")
    return parser.parse_args()


def measure(title, command, ours, arguments, uris):
    """Runs a job alternately without ringway and with each URI, and prints a record of each run."""
    for run in range(arguments.runs):
        for uri in ["", *uris]:
            options = [*command, f"--seed={run + 1}", *(ours if uri else [])]
            rate, operations, cpu = db_bench(options, arguments.object if uri else None, uri)
            figures = {
                KEYS: keys_of(rate, options),
                CPU: cpu * 1e6 / keys_of(operations, options),
            }
            name = uri or ALONE
            record("turn", {"row": title, "contestant": name, "round": run + 1, "figures": figures})


def main():
    arguments = parse_arguments()
    uris = arguments.uri or ["ringway://"]
    jobs = [job for job in JOBS if arguments.only in job[0]]

    with tempfile.TemporaryDirectory(prefix="ringway-rocksdb-", dir=arguments.dir) as directory:
        for name in {job[1]: None for job in jobs}:
            fill(name, directory, arguments.keys)
        columns = [
            {"figure": name, "range": True, "ratios": {"ratio": ALONE}} for name in (KEYS, CPU)
        ]
        record("columns", columns)
        for title, database, options, ours in jobs:
            path = os.path.join(directory, database)
            command = [*COMMON, f"--db={path}", f"--num={arguments.keys}"]
            command += [f"--duration={arguments.seconds}", *options]
            measure(title, command, ours, arguments, uris)


if __name__ == "__main__":
    main()
