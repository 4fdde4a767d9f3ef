#!/usr/bin/env python3
"""db_bench with the shared object preloaded and without, in turn, on the same database: keys a second, and CPU time a key.

Fills a database in a directory of its own below --dir, on a disk that takes direct I/O, and removes it. Each job runs --runs times,
without and with, without and with ...; the table shows medians and, in brackets, the range. CPU time is user and system time of all threads
of db_bench. Nothing else should run meanwhile.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

# What db_bench is told in every job. Nothing is kept in the block cache: what is measured is reading.
COMMON = ["--use_existing_db", "--value_size=400", "--cache_size=0", "--threads=1"]
DIRECT = ["--use_direct_reads"]
BATCHED = ["--benchmarks=multireadrandom", "--multiread_batched"]
SEEK = ["--benchmarks=seekrandom", "--seek_nexts=1000"]

# Name, database, options, options with us only. The table that docs/performance.md shows, in this order.
JOBS = [
    ("MultiGet of 32, direct, one file", "one", BATCHED + ["--batch_size=32"] + DIRECT, []),
    ("MultiGet of 32, direct, files of 64 MiB", "many", BATCHED + ["--batch_size=32"] + DIRECT, []),
    ("MultiGet of 1, direct", "one", BATCHED + ["--batch_size=1"] + DIRECT, []),
    ("Get, direct", "one", ["--benchmarks=readrandom"] + DIRECT, []),
    ("MultiGet of 32, cached by the kernel", "one", BATCHED + ["--batch_size=32"], []),
    ("Get, cached by the kernel", "one", ["--benchmarks=readrandom"], []),
    ("seek and 1000 next, direct, async_io with us", "one", SEEK + DIRECT, ["--async_io"]),
    ("seek and 1000 next, cached, async_io with us", "one", SEEK, ["--async_io"]),
]
DATABASES = {
    "one": ["--target_file_size_base=8589934592", "--write_buffer_size=8589934592"],
    "many": [],
}
RESULT = re.compile(r"^(\w+) *: *[\d.]+ micros/op (\d+) ops/sec ([\d.]+) seconds (\d+) operations", re.MULTILINE)


def db_bench(options, preload=None, uri=None):
    """Runs it; operations a second, operations, and CPU seconds."""
    environment = dict(os.environ)
    command = ["db_bench", *options]
    if preload:
        environment["LD_PRELOAD"] = preload
        command.append("--fs_uri=" + uri)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read().decode(errors="replace").replace("\r", "\n")
    result = RESULT.search(text)
    if status != 0 or result is None:
        sys.exit(f"{' '.join(command)}: wait status {status}\n{text[-2000:]}")
    return float(result[2]), int(result[4]), usage.ru_utime + usage.ru_stime


def fill(name, directory, keys):
    """Every key once, in as many files as the database's options make."""
    path = os.path.join(directory, name)
    print(f"filling {name} ...", file=sys.stderr)
    db_bench(["--benchmarks=fillseq,compact", f"--db={path}", f"--num={keys}", "--value_size=400", "--disable_wal", *DATABASES[name]])
    for file in os.listdir(path):  # so that what is not direct finds it in the page cache, for both
        with open(os.path.join(path, file), "rb") as contents:
            while contents.read(1 << 20):
                pass
    tables = [os.path.getsize(os.path.join(path, file)) for file in os.listdir(path) if file.endswith(".sst")]
    print(f"{name}: {len(tables)} tables of {sum(tables) / 1e6:.0f} MB in all", file=sys.stderr)


def keys_of(operations, options):
    """A seek is as many keys as it walks over."""
    return operations * 1001 if SEEK[0] in options else operations


def show(values, form):
    return f"{format(statistics.median(values), form)} ({format(min(values), form)}-{format(max(values), form)})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--object", required=True, help="libringway_rocksdb.so")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the databases are made: about 1 GB")
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="the length of a run")
    parser.add_argument("--uri", action="append", help="with what the object is used, more than once for several; ringway://")
    parser.add_argument("--only", default="", help="the jobs whose names contain this")
    arguments = parser.parse_args()
    uris = arguments.uri or ["ringway://"]
    jobs = [job for job in JOBS if arguments.only in job[0]]

    with tempfile.TemporaryDirectory(prefix="ringway-rocksdb-", dir=arguments.dir) as directory:
        for name in {job[1]: None for job in jobs}:
            fill(name, directory, arguments.keys)
        print("| job | | keys/s | times | CPU µs a key | times |")
        print("|---|---|---|---|---|---|")
        for title, database, options, ours in jobs:
            command = [*COMMON, f"--db={os.path.join(directory, database)}", f"--num={arguments.keys}", f"--duration={arguments.seconds}", *options]
            rates = {uri: [] for uri in ["", *uris]}
            costs = {uri: [] for uri in ["", *uris]}
            for run in range(arguments.runs):
                for uri in rates:
                    rate, operations, cpu = db_bench([*command, f"--seed={run + 1}", *(ours if uri else [])], arguments.object if uri else None, uri)
                    rates[uri].append(keys_of(rate, options))
                    costs[uri].append(cpu * 1e6 / keys_of(operations, options))
            for uri in rates:
                times = statistics.median(rates[uri]) / statistics.median(rates[""])
                cost = statistics.median(costs[uri]) / statistics.median(costs[""])
                ratio = f"{times:.2f} | {show(costs[uri], '.2f')} | {cost:.2f}" if uri else f"| {show(costs[uri], '.2f')} |"
                print(f"| {'' if uri else title} | {uri or 'RocksDB alone'} | {show(rates[uri], '.0f')} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
