#!/usr/bin/env python3
"""Runs the tests' job files under fio and under `ringway bench`, and compares their requests.

    scripts/compare-fio-jobs.py [--record]

For each job it compares the number of requests and bytes in each direction, the syncs, the sizes of
the files, and the offset and order of each request. For a job with a random part it compares the
sums alone. With --record it writes fio's figures to the data that the tests check against; without,
a difference from that data is an error too.

It needs fio 3.33, strace, and `cargo build -p ringway-cli`, which it does not run.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "../crates/ringway-cli/tests/fio_jobs.json")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "../target"))
RINGWAY = os.path.join(TARGET, "debug/ringway")
CALLS = {"pread64": "read", "pwrite64": "write", "fsync": "sync", "fdatasync": "sync"}


def prepare(case, folder):
    for name, size in case.get("before", {}).items():
        with open(os.path.join(folder, name), "wb") as file:
            file.truncate(size)
    for name, text in {**case.get("beside", {}), "job.fio": case["job"]}.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)


def results(report, folder, case, requests):
    def direction(of):
        return [of["total_ios"], of["io_bytes"]]
    jobs = [{"read": direction(job["read"]), "write": direction(job["write"]),
             "ioengine": engine(job, report)} for job in report["jobs"]]
    given = {"job.fio", *case.get("beside", {})}
    made = [name for name in sorted(os.listdir(folder)) if name not in given]
    sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in made}
    # fio's psync engine syncs but does not report it.
    syncs = sum(call == "sync" for of in requests.values() for call, _, _ in of)
    return {"jobs": jobs, "syncs": syncs, "files": sizes}


def engine(job, report):
    shared = report.get("global options", {})
    return job["job options"].get("ioengine") or shared.get("ioengine", "psync")


def run(case, command):
    """Returns what a command reports, and the requests of each file in order."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(case, folder)
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if "{" not in ran.stdout:
            sys.exit(f"{case['name']}: {ran.stderr}")
        report = json.loads(ran.stdout[ran.stdout.index("{"):])
        with tempfile.TemporaryDirectory() as again:
            prepare(case, again)
            requests = places(command, again)
        return results(report, folder, case, requests), requests


def fio(case):
    return run(case, ["fio", "job.fio", "--thread", "--output-format=json"])


def ringway(case):
    return run(case, [RINGWAY, "bench", "job.fio", "--quiet", "--json", "-", "--overwrite"])


def places(command, folder):
    """Returns the requests of each file in order, as the threads of the jobs make them.

    Both programs lay out files in their main thread, whose calls are left out.
    """
    found = {}
    with tempfile.TemporaryDirectory() as traces:
        calls = f"trace=execve,{','.join(CALLS)}"
        subprocess.run(["strace", "-ff", "-y", "-o", f"{traces}/trace", "-e", calls, *command],
                       cwd=folder, capture_output=True)
        call = re.compile(r"(\w+)\(\d+<[^>]*/([^/>]+)>(?:, .*, (\d+), (\d+))?\) *= (\d+)$")
        for trace in sorted(os.listdir(traces)):
            with open(f"{traces}/{trace}") as text:
                lines = text.read().splitlines()
            if any(words.startswith("execve(") for words in lines):
                continue
            for parsed in filter(None, map(call.search, lines)):
                name, file, length, offset, _ = parsed.groups()
                request = CALLS[name], int(offset or 0), int(length or 0)
                found.setdefault(file, []).append(request)
    return found


def data(cases):
    """Two lines for each case: what is run, and what fio made of it."""
    def lines(case):
        run = json.dumps({key: value for key, value in case.items() if key != "fio"})
        return f'{run[:-1]},\n  "fio": {json.dumps(case["fio"])}}}'
    return "[\n" + ",\n".join(map(lines, cases)) + "\n]\n"


def main():
    record = sys.argv[1:] == ["--record"]
    with open(DATA) as file:
        cases = json.load(file)
    wrong = 0
    for case in cases:
        (theirs, their_places), (ours, our_places) = fio(case), ringway(case)
        if record:
            case["fio"] = theirs
        problems = []
        if case["fio"] != theirs:
            problems.append(f"recorded {case['fio']}, fio has {theirs}")
        if case.get("random"):
            # The random numbers differ, so only the sums can be compared.
            def sums(of):
                moved = sum(job["read"][1] + job["write"][1] for job in of["jobs"])
                return moved, len(of["jobs"]), of["files"]
            theirs, ours = sums(theirs), sums(ours)
            their_places, our_places = set(their_places), set(our_places)
        if theirs != ours:
            problems.append(f"fio has {theirs}, ringway {ours}")
        # Only psync, the default engine, makes a system call for each request.
        if "ioengine=" not in case["job"] and their_places != our_places:
            problems.append(f"places: fio {their_places}, ringway {our_places}")
        print(f"{case['name']}: {'; '.join(problems) or 'the same'}")
        wrong += bool(problems)
    if record:
        with open(DATA, "w") as file:
            file.write(data(cases))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
