#!/usr/bin/env python3
"""Runs the suites of all bindings on Debian's kernels, in QEMU: `make test-kernels`.

Prints a line for each suite on each kernel and a table at the end. The results are left in
target/kernels/results.json, over those of earlier runs on the same kernels; --write puts all of
them into docs/platforms.md. The exit status is 0 only if every suite passed on every kernel.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import sys
import threading
import time

import guest
import initramfs
import packages
import report
import results
import suites
import survey

# The kernels that are tested if none are named.
KERNELS = ["bullseye", "bookworm", "trixie", "sid", "trixie-arm64"]
RESULTS = guest.CACHE / "results.json"
# How often a guest that runs nothing is booted.
BOOTS = 3
PRINTING = threading.Lock()


def say(text: str) -> None:
    """Prints a line at once."""
    with PRINTING:
        print(text, flush=True)


def run_kernel(kernel: packages.Kernel, wanted: list[suites.Suite],
               logs: pathlib.Path) -> report.KernelResult:
    """Runs suites on a kernel. A guest that dies is booted again for the programs after that."""
    name = kernel.wanted.name
    found = report.KernelResult(name, kernel.version, "", {}, [suite.name for suite in wanted])
    machine = results.Machine(kernel.version, kernel.arch)
    owner = {f"{suite.name}/{program.name}": (suite, program)
             for suite in wanted for program in suite.programs}
    waiting, boots_left = list(owner), BOOTS
    consoles: list[str] = []
    while waiting and boots_left:
        archive = guest.base(kernel)
        here = [owner[entry][0] for entry in waiting]
        archive.add_all({file for suite in here for file in suite.files})
        modules = list(dict.fromkeys(name for suite in here for name in suite.modules))
        initramfs.add_modules(archive, kernel.more_modules(modules), len(kernel.modules))
        commands = [guest.Command(entry, owner[entry][1].line, owner[entry][1].seconds)
                    for entry in waiting]
        booted = guest.Guest(kernel, archive, commands, shares="virtiofs" in modules)
        before = len(waiting)
        for ended in booted.run():
            waiting.remove(ended.name)
            suite, program = owner[ended.name]
            log = logs / name / f"{ended.name.replace(' ', '-')}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(f"{ended.output}\nstatus {ended.status}\n")
            outcome = results.judge(program.name, program.kind, ended.status, ended.output,
                                    ended.seconds, machine, suite.name,
                                    suites.EXPECTED_SKIPS)
            if program.kind == "probe" and outcome.ok:
                report.add_probe(found, program.name, json.loads(ended.output))
            if suite.recorder and outcome.ok:
                survey.record(suite.recorder, ended.output, guest.CACHE / f"survey-{name}.json")
            found.release = booted.parser.release
            add(found, suite, outcome, log)
        (logs / name).mkdir(parents=True, exist_ok=True)
        # (All boots: the first one's shows why a guest died.)
        consoles.append(booted.console)
        (logs / name / "console").write_text("\n---- the next boot ----\n".join(consoles))
        if guest.STOPPED.is_set():
            return found
        if len(waiting) < before:
            boots_left = BOOTS
        else:
            boots_left -= 1
            say(f"{name}: the guest runs nothing:\n{booted.console[-2000:]}")
    for entry in waiting:
        suite, program = owner[entry]
        add(found, suite, results.never_ran(program.name), None)
    return found


def add(found: report.KernelResult, suite: suites.Suite, outcome: results.Outcome,
        log: pathlib.Path | None) -> None:
    """Adds the outcome of a program, and prints the line of its suite if it is the last one."""
    outcomes = found.suites.setdefault(suite.name, [])
    outcomes.append(outcome)
    if not outcome.ok:
        say(f"  {found.name} {suite.name} {outcome.program}: {report.reasons(outcome)}"
            f"{f' (see {log})' if log else ''}")
    if len(outcomes) == len(suite.programs):
        say(report.line(found, suite.name, outcomes))
        with PRINTING:
            report.merge(RESULTS, found, suite.name)


def guests_that_fit() -> int:
    """How many guests this machine's processors and free memory have room for; one at least."""
    known = pathlib.Path("/proc/meminfo").read_text()
    available = int(re.search(r"^MemAvailable: +(\d+) kB$", known, re.MULTILINE)[1])
    return max(1, min((os.cpu_count() or 2) // 2, available // (guest.MEMORY << 10)))


def main() -> int:
    """Reads the arguments, runs, and reports."""
    titles = "".join(f"  {name:12} {title}\n" for name, title in suites.TITLES.items())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"the suites of --tests:\n{titles}\nexamples:\n"
        "  run.py --kernels \"bookworm trixie-arm64\" --tests \"probe conformance\"\n"
        "  run.py --kernels bookworm:/tmp/linux-image-6.1.0-25-cloud-amd64_6.1.106-3_amd64.deb\n"
        "  run.py --kernels jammy:linux-image-unsigned-...deb,linux-modules-...deb (Ubuntu's)\n\n"
        f"{packages.HELP}\n--write shows each kernel that target/kernels/results.json has; delete "
        "its entry there\nto leave it out.")
    parser.add_argument("--kernels", default=" ".join(KERNELS), help="SUITE, SUITE-ARCH or "
                        "SUITE:PACKAGE, such as \"bookworm trixie-arm64\"; without, "
                        f"{' '.join(KERNELS)}. PACKAGE is a kernel's package in the suite, or the "
                        "path of a .deb")
    parser.add_argument("--tests", default="", help="names of suites, listed below; without, all")
    parser.add_argument("--soak", default="60s", help="time of the soak; without, 60s")
    parser.add_argument("--jobs", type=int, default=guests_that_fit(),
                        help="guests at a time, each with two processors and "
                        f"{guest.MEMORY} MiB; without, as many as fit")
    parser.add_argument("--refresh", action="store_true", help="look for newer kernels")
    parser.add_argument("--write", action="store_true", help="write docs/platforms.md's table")
    parser.add_argument("--record", action="store_true", help="record what the survey observes, "
                        "and write docs/file-systems.md, instead of comparing")
    options = parser.parse_args()
    chosen = [packages.Wanted.parse(text) for text in options.kernels.split() or KERNELS]
    unknown = [name for name in options.tests.split() if name not in suites.TITLES]
    if unknown:
        parser.error(f"no such suites: {' '.join(unknown)}; there are {' '.join(suites.TITLES)}")
    began = time.monotonic()
    logs = guest.CACHE / "logs"
    made = {}
    # (First what a wrong name or a mirror can refuse, then what takes long.)
    kernels = [packages.fetch(wanted, guest.CACHE, options.refresh) for wanted in chosen]
    for wanted in chosen:
        if wanted.arch not in made:
            made[wanted.arch] = suites.all_suites(wanted.arch, options.tests.split(), options.soak,
                                                   options.record)
    found: list[report.KernelResult] = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tasks = [pool.submit(run_kernel, kernel, made[kernel.arch], logs) for kernel in kernels]
        try:
            for task in tasks:
                found.append(task.result())
        except (KeyboardInterrupt, SystemExit):
            pool.shutdown(wait=False, cancel_futures=True)
            guest.stop()
            raise
    ran = {suite.name for list_ in made.values() for suite in list_}
    say("\n" + report.table(found, {name: title for name, title in suites.TITLES.items()
                                    if name in ran}))
    say(f"{time.monotonic() - began:.0f} s; logs are in {logs}")
    if options.write:
        report.write(guest.ROOT / "docs/platforms.md", RESULTS, KERNELS,
                     suites.TITLES)
    return 0 if report.all_passed(found) else 1


if __name__ == "__main__":
    # (As with SIGINT, the guests end, and their disks are removed.)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except (packages.FetchError, guest.ServerError) as error:
        sys.exit(f"run.py: {error}")
