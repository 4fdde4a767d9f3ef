#!/usr/bin/env python3
"""Runs the job files of the tests under fio and under `ringway bench`, and compares what each has moved.

    scripts/compare-fio-jobs.py [--record]

Wants fio 3.33, strace, and `cargo build -p ringway-cli` done before. For each job: requests and bytes of each direction,
syncs, the files' sizes, and every request's place in order; of what has a random part, the sums. With --record fio's figures are written into the data that the tests check against; without, a
difference from those is an error too.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "../crates/ringway-cli/tests/fio_jobs.json")
RINGWAY = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "../target")), "debug/ringway")
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
    jobs = [{"read": direction(job["read"]), "write": direction(job["write"]), "ioengine": engine(job, report)}
            for job in report["jobs"]]
    given = {"job.fio", *case.get("beside", {})}
    sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
             if name not in given}
    # fio reports no syncs of psync, and makes them.
    syncs = sum(call == "sync" for of in requests.values() for call, _, _ in of)
    return {"jobs": jobs, "syncs": syncs, "files": sizes}


def engine(job, report):
    return job["job options"].get("ioengine") or report.get("global options", {}).get("ioengine", "psync")


def run(case, command):
    """What a command reports, and the requests of each file in their order."""
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
    """Of each file the requests in their order, as the threads of the jobs make them. Files are laid out by the main
    thread, in both."""
    found = {}
    with tempfile.TemporaryDirectory() as traces:
        calls = f"trace=execve,{','.join(CALLS)}"
        subprocess.run(["strace", "-ff", "-y", "-o", f"{traces}/trace", "-e", calls, *command], cwd=folder,
                       capture_output=True)
        line = re.compile(r"(\w+)\(\d+<[^>]*/([^/>]+)>(?:, .*, (\d+), (\d+))?\) *= (\d+)$")
        for name in sorted(os.listdir(traces)):
            with open(f"{traces}/{name}") as text:
                lines = text.read().splitlines()
            if any(words.startswith("execve(") for words in lines):
                continue
            for call, name, asked, offset, _ in (parsed.groups() for parsed in filter(None, map(line.search, lines))):
                found.setdefault(name, []).append((CALLS[call], int(offset or 0), int(asked or 0)))
    return found


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
            # Not the same random numbers: only the sums are the same.
            def sums(of):
                return sum(job["read"][1] + job["write"][1] for job in of["jobs"]), len(of["jobs"]), of["files"]
            theirs, ours = sums(theirs), sums(ours)
            their_places, our_places = set(their_places), set(our_places)
        if theirs != ours:
            problems.append(f"fio has {theirs}, ringway {ours}")
        # Other engines' requests are no system calls of their own.
        if "ioengine=" not in case["job"] and their_places != our_places:
            problems.append(f"places: fio {their_places}, ringway {our_places}")
        print(f"{case['name']}: {'; '.join(problems) or 'the same'}")
        wrong += bool(problems)
    if record:
        with open(DATA, "w") as file:
            json.dump(cases, file, indent=1)
            file.write("\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
