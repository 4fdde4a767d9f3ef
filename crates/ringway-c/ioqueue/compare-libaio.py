#!/usr/bin/env python3
"""Compares ioqueue.h with the same loop on libaio.

usage: compare-libaio.py PROGRAMS [--file FILE] [--rounds N] [--part N] [--backend kaio]

PROGRAMS is the directory of ioqueue_bench, ioqueuemt_bench and libaio_loop (`make ioqueue-bench`).
For each block size the two programs run alternately, A B B A, and their medians are compared: CPU
per operation (lower is better) and operations per second (higher is better). Then the rows closest
to the median are printed in the columns of the original's README."""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile

COLUMNS = "backend reqs    bufsize depth   rtime   utime   stime   cpu     us/op   op/s    MB/s"
REQUESTS = {
    512: 262144,
    1024: 262144,
    2048: 262144,
    4096: 131072,
    8192: 131072,
    16384: 131072,
    32768: 65536,
    65536: 65536,
    131072: 65536,
    262144: 32768,
}

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("programs", help="directory of the programs")
parser.add_argument("--file", help="file to read (a new one of 1 GiB in PROGRAMS)")
parser.add_argument("--rounds", type=int, default=5, help="runs of each program (5)")
parser.add_argument("--part", type=int, default=1, help="divisor of the number of requests (1)")
parser.add_argument(
    "--backend", default="kaio", help="kaio, uring, threads; mt: libioqueuemt (kaio)"
)
parser.add_argument("--sizes", default=",".join(map(str, REQUESTS)), help="block sizes (all)")
options = parser.parse_args()


# Each run reads at other offsets: the host or the device may have cached those of earlier runs.
seeds = itertools.count(1)


def run(program, size, path):
    """Runs one row. Returns CPU microseconds per operation, operations per second, and the row."""
    requests = max(1, REQUESTS[size] // options.part)
    environment = dict(os.environ, REQS=str(requests), SEED=str(next(seeds)))
    if options.backend != "mt":
        environment["RINGWAY_BACKEND"] = options.backend
    command = [os.path.join(options.programs, program), path, str(size)]
    output = subprocess.run(
        command, env=environment, check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    row = output.splitlines()[1]
    field = row.split()
    return float(field[7]) * 1e3 / float(field[1]), float(field[9]), row


def middle(runs):
    """The row of the run with the median CPU per operation."""
    return sorted(runs)[len(runs) // 2][2]


def main():
    path = options.file
    with tempfile.NamedTemporaryFile(dir=options.programs) as scratch:
        if not path:
            path = scratch.name
            for _ in range(1024):
                scratch.write(os.urandom(1 << 20))
            scratch.flush()
            os.fsync(scratch.fileno())
        ours = "ioqueuemt_bench" if options.backend == "mt" else "ioqueue_bench"
        rows = {"ours": [], "libaio": []}
        print(f"{'':8}{'CPU us per operation':^26}{'operations per second':^26}")
        half = f"{options.backend:>8}{'libaio':>8}{'ratio':>8}"
        print(f"{'bufsize':8}{half}  {half}")
        ratios = []
        for size in map(int, options.sizes.split(",")):
            runs = {"ours": [], "libaio": []}
            # The first program alternates, because the order makes a difference on some disks.
            pair = [("ours", ours), ("libaio", "libaio_loop")]
            for turn in range(options.rounds):
                for who, program in pair[:: 1 - turn % 2 * 2]:
                    runs[who].append(run(program, size, path))
            cpu, ops = (
                {who: statistics.median(one[at] for one in runs[who]) for who in runs}
                for at in (0, 1)
            )
            ratios.append((cpu["ours"] / cpu["libaio"], ops["ours"] / ops["libaio"]))
            print(
                f"{size:<8}{cpu['ours']:8.2f}{cpu['libaio']:8.2f}{ratios[-1][0]:8.3f}  "
                f"{ops['ours']:8.0f}{ops['libaio']:8.0f}{ratios[-1][1]:8.3f}",
                flush=True,
            )
            for who in rows:
                rows[who].append(middle(runs[who]))
        cpu_mean, ops_mean = (statistics.geometric_mean(one[at] for one in ratios) for at in (0, 1))
        print(f"{'mean':24}{cpu_mean:8.3f}  {ops_mean:24.3f}")
        for who in rows:
            print("", COLUMNS, *rows[who], sep="\n")


if __name__ == "__main__":
    sys.exit(main())
