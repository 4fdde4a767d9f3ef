#!/usr/bin/env python3
"""Compares random 4 KiB direct reads of one file by ringway, by a bare io_uring loop and by fio.

The configurations run in turn; the output has the medians and the ratios of pairs. CPU time is what
each program counts for itself: all its threads, without its set-up.

    scripts/compare-with-fio.py FILE [--depth 32,128] [--seconds 5] [--rounds 5] [--only psync]

It needs fio, and `cargo build --release --examples --workspace`, which it does not run.
"""

import argparse
import csv
import io
import json
import os
import statistics
import subprocess

TARGET = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release")


def output(command):
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True)
    return run.stdout


def ringway(backend, *options):
    def run(file, depth, seconds):
        # psync has one request in flight for each job.
        psync = ["--jobs", str(depth), "--depth", "1"]
        in_flight = psync if backend == "psync" else ["--depth", str(depth)]
        text = output([f"{TARGET}/ringway", "bench", "--quiet", "--backend", backend, *in_flight,
                       "--rw", "randread", "--bs", "4k", "--direct", "1",
                       "--runtime", f"{seconds}s", "--repeat", "1", "--csv", "-", *options, file])
        row = next(csv.DictReader(io.StringIO(text)))
        return float(row["ops_per_second"]), float(row["cpu_us_per_op"])
    return run


def bare(file, depth, seconds):
    words = output([f"{TARGET}/examples/bare_ring", file, str(depth), str(seconds)]).split()
    return float(words[0]), float(words[2])


def fio(engine):
    def run(file, depth, seconds):
        in_flight = f"--numjobs={depth}" if engine == "psync" else f"--iodepth={depth}"
        text = output(["fio", "--name=r", f"--filename={file}", f"--ioengine={engine}",
                       "--rw=randread", "--bs=4k", "--direct=1", "--thread", "--group_reporting",
                       "--time_based", f"--runtime={seconds}", "--output-format=json", in_flight])
        job = json.loads(text[text.index("{"):])["jobs"][0]
        # CPU time is in percent of the time of all jobs together.
        cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1000
        return job["read"]["iops"], cpu / job["read"]["total_ios"]
    return run


CONFIGURATIONS = {
    "bare ring": bare,
    "ringway uring": ringway("uring"),
    # fio submits each request by itself unless it is configured otherwise.
    "ringway uring, 1": ringway("uring", "--batch", "1"),
    "fio io_uring": fio("io_uring"),
    "ringway kaio": ringway("kaio"),
    "ringway kaio, 1": ringway("kaio", "--batch", "1"),
    "fio libaio": fio("libaio"),
    "ringway threads": ringway("threads"),
    "ringway psync": ringway("psync"),
    "fio psync": fio("psync"),
}
PAIRS = [("ringway uring", "bare ring"), ("ringway uring", "fio io_uring"),
         ("ringway uring, 1", "fio io_uring"), ("ringway kaio", "fio libaio"),
         ("ringway kaio, 1", "fio libaio"), ("ringway threads", "fio psync"),
         ("ringway psync", "fio psync")]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("file")
    options.add_argument("--depth", default="32,128")
    options.add_argument("--seconds", type=int, default=5)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default="", help="only configurations whose name contains this")
    options = options.parse_args()
    for depth in map(int, options.depth.split(",")):
        runs = {name: [] for name in CONFIGURATIONS if options.only in name}
        for _ in range(options.rounds):
            for name in runs:
                run = CONFIGURATIONS[name]
                runs[name].append(run(options.file, depth, options.seconds))
        print(f"depth {depth}: medians of {options.rounds} rounds")
        for name, all_runs in runs.items():
            ops, cpu = ([run[of] for run in all_runs] for of in (0, 1))
            print(f"  {name:16} {statistics.median(ops):9.0f} op/s"
                  f" ({min(ops):.0f} to {max(ops):.0f})"
                  f"  {statistics.median(cpu):6.2f} us CPU ({min(cpu):.2f} to {max(cpu):.2f})")
        for one, other in (pair for pair in PAIRS if set(pair) <= set(runs)):
            ops, cpu = ([a[of] / b[of] for a, b in zip(runs[one], runs[other])] for of in (0, 1))
            print(f"  {one} / {other}: op/s {statistics.median(ops):.2f},"
                  f" CPU {statistics.median(cpu):.2f} (medians of the ratios round by round)")


if __name__ == "__main__":
    main()
