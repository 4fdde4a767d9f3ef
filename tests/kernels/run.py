#!/usr/bin/env python3
"""Runs the suites of all bindings on Debian's kernels, in QEMU: `make test-kernels`.

Prints a line for each suite on each kernel and a table at the end. The results are left in
target/kernels/results.json; --write puts the table into docs/platforms.md. The exit status is 0
only if every suite passed on every kernel.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import sys
import threading
import time

import guest
import initramfs
import packages
import report
import results
import suites

# Debian's suites, and the processors whose kernels are tested.
KERNELS = [("bullseye", "amd64"), ("bookworm", "amd64"), ("trixie", "amd64"), ("sid", "amd64")]
PRINTING = threading.Lock()


def say(text: str) -> None:
    """Prints a line at once."""
    with PRINTING:
        print(text, flush=True)


def run_kernel(kernel: packages.Kernel, wanted: list[suites.Suite],
               logs: pathlib.Path) -> report.KernelResult:
    """Runs suites on a kernel. A guest that dies is booted again for the programs after that."""
    found = report.KernelResult(kernel.suite, kernel.arch, kernel.version, "", {})
    owner = {f"{suite.name}/{program.name}": (suite, program)
             for suite in wanted for program in suite.programs}
    waiting = list(owner)
    while waiting:
        archive = initramfs.base(kernel)
        archive.add_all({file for name in waiting for file in owner[name][0].files})
        commands = [guest.Command(name, owner[name][1].line, owner[name][1].seconds)
                    for name in waiting]
        machine = guest.Guest(kernel, archive, commands)
        before = len(waiting)
        for ended in machine.run():
            waiting.remove(ended.name)
            suite, program = owner[ended.name]
            log = logs / f"{kernel.suite}-{kernel.arch}" / f"{ended.name.replace(' ', '-')}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(f"{ended.output}\nstatus {ended.status}\n")
            outcome = results.judge(program.name, program.kind, ended.status, ended.output,
                                    ended.seconds, kernel.suite, suite.name,
                                    suites.EXPECTED_SKIPS)
            if suite.name == "probe":
                found.probe = ended.output
            add(found, suite, outcome, log)
        found.release = machine.parser.release or found.release
        (logs / f"{kernel.suite}-{kernel.arch}").mkdir(parents=True, exist_ok=True)
        (logs / f"{kernel.suite}-{kernel.arch}" / "console").write_text(machine.console)
        if len(waiting) == before:
            say(f"{kernel.suite}: the guest runs nothing:\n{machine.console[-2000:]}")
            break
    for name in waiting:
        suite, program = owner[name]
        add(found, suite, results.never_ran(program.name), None)
    return found


def add(found: report.KernelResult, suite: suites.Suite, outcome: results.Outcome,
        log: pathlib.Path | None) -> None:
    """Adds the outcome of a program, and prints the line of its suite if it is the last one."""
    outcomes = found.suites.setdefault(suite.name, [])
    outcomes.append(outcome)
    if not outcome.ok:
        say(f"  {found.suite} {suite.name} {outcome.program}: {report.reasons(outcome)}"
            f"{f' (see {log})' if log else ''}")
    if len(outcomes) == len(suite.programs):
        say(report.line(found, suite.name, outcomes))


def main() -> int:
    """Reads the arguments, runs, and reports."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="", help="such as \"bookworm trixie\"; else all")
    parser.add_argument("--tests", default="", help="suites, such as \"core c\"; else all")
    parser.add_argument("--soak", default="60s", help="time of the soak")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2),
                        help="guests at a time; each has two processors")
    parser.add_argument("--refresh", action="store_true", help="look for newer kernels")
    parser.add_argument("--write", action="store_true", help="write docs/platforms.md's table")
    options = parser.parse_args()
    names = options.kernels.split()
    chosen = [entry for entry in KERNELS if not names or entry[0] in names or
              "-".join(entry) in names]
    if not chosen or any(name not in [text for entry in KERNELS
                                      for text in (entry[0], "-".join(entry))] for name in names):
        parser.error(f"no such kernels: {options.kernels}")
    began = time.monotonic()
    logs = guest.CACHE / "logs"
    made = {}
    for suite, arch in chosen:
        if arch not in made:
            made[arch] = suites.all_suites(arch, options.tests.split(), options.soak)
    found: list[report.KernelResult] = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tasks = [pool.submit(run_kernel, packages.fetch(suite, arch, guest.CACHE, options.refresh),
                             made[arch], logs) for suite, arch in chosen]
        for task in tasks:
            found.append(task.result())
    titles = {suite.name: suite.title for suites_ in made.values() for suite in suites_}
    all_results = report.merge(guest.CACHE / "results.json", found, titles)
    say("\n" + report.table(found, titles))
    say(f"{time.monotonic() - began:.0f} s; logs are in {logs}")
    if options.write:
        report.write(guest.ROOT / "docs/platforms.md", all_results)
    return 0 if report.all_passed(found, titles) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except packages.FetchError as error:
        sys.exit(f"run.py: {error}")
