#!/usr/bin/env python3
"""beside-libaio.py PROGRAMS [--file FILE] [--rounds N] [--part N] [--backend kaio]: ioqueue.h beside the same loop on plain libaio.

PROGRAMS is the folder that has ioqueue_bench, ioqueuemt_bench and libaio_loop (`make ioqueue-bench`). For each block size the two run in turn, A B B A,
and the medians are compared: CPU an operation (less is better) and operations a second (more is better). The rows of the table that are closest to the
median come after, in the columns of the original's README."""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile

COLUMNS = "backend reqs    bufsize depth   rtime   utime   stime   cpu     us/op   op/s    MB/s"
REQUESTS = {512: 262144, 1024: 262144, 2048: 262144, 4096: 131072, 8192: 131072, 16384: 131072, 32768: 65536, 65536: 65536, 131072: 65536, 262144: 32768}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("programs", help="the folder with the programs")
parser.add_argument("--file", help="reads this file instead of a new one of 1 GiB beside the programs")
parser.add_argument("--rounds", type=int, default=5, help="how often each runs (5)")
parser.add_argument("--part", type=int, default=1, help="does one request of so many of the original's (1)")
parser.add_argument("--backend", default="kaio", help="of ioqueue.h: kaio, uring, threads, or mt for libioqueuemt (kaio)")
parser.add_argument("--sizes", default=",".join(map(str, REQUESTS)), help="block sizes (all)")
options = parser.parse_args()


# Each run reads elsewhere: what the one before it has read may be in a cache of the host's or of the device's.
seeds = itertools.count(1)


def run(program, size, path):
    """One row as numbers: (CPU microseconds an operation, operations a second, the row)."""
    environment = dict(os.environ, REQS=str(max(1, REQUESTS[size] // options.part)), SEED=str(next(seeds)))
    if options.backend != "mt":
        environment["RINGWAY_BACKEND"] = options.backend
    output = subprocess.run([os.path.join(options.programs, program), path, str(size)], env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout
    row = output.splitlines()[1]
    field = row.split()
    return float(field[7]) * 1e3 / float(field[1]), float(field[9]), row


def middle(runs):
    """The run whose CPU an operation is the median's."""
    return sorted(runs)[len(runs) // 2][2]


def main():
    path = options.file
    with tempfile.NamedTemporaryFile(dir=options.programs) as made:
        if not path:
            path = made.name
            for _ in range(1024):
                made.write(os.urandom(1 << 20))
            made.flush()
            os.fsync(made.fileno())
        ours = "ioqueuemt_bench" if options.backend == "mt" else "ioqueue_bench"
        rows = {"ours": [], "libaio": []}
        print(f"{'':8}{'CPU us an operation':^26}{'operations a second':^26}")
        print(f"{'bufsize':8}{options.backend:>8}{'libaio':>8}{'ratio':>8}  {options.backend:>8}{'libaio':>8}{'ratio':>8}")
        ratios = []
        for size in map(int, options.sizes.split(",")):
            runs = {"ours": [], "libaio": []}
            # Which of the two is first changes: that makes a difference on some disks.
            pair = [("ours", ours), ("libaio", "libaio_loop")]
            for turn in range(options.rounds):
                for who, program in pair[:: 1 - turn % 2 * 2]:
                    runs[who].append(run(program, size, path))
            cpu, ops = ({who: statistics.median(one[at] for one in runs[who]) for who in runs} for at in (0, 1))
            ratios.append((cpu["ours"] / cpu["libaio"], ops["ours"] / ops["libaio"]))
            print(
                f"{size:<8}{cpu['ours']:8.2f}{cpu['libaio']:8.2f}{ratios[-1][0]:8.3f}  "
                f"{ops['ours']:8.0f}{ops['libaio']:8.0f}{ratios[-1][1]:8.3f}",
                flush=True,
            )
            for who in rows:
                rows[who].append(middle(runs[who]))
        print(f"{'mean':24}{statistics.geometric_mean(one[0] for one in ratios):8.3f}  {statistics.geometric_mean(one[1] for one in ratios):24.3f}")
        for who in rows:
            print("", COLUMNS, *rows[who], sep="\n")


if __name__ == "__main__":
    sys.exit(main())
