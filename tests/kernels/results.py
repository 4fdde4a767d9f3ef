"""What a test program's output and exit status mean, and which skips are expected.

A program passes only if it ended with status 0, its output says that tests ran, and every skip is
in EXPECTED_SKIPS. A program that prints nothing, dies, or never ran has failed.
"""

import dataclasses
import json
import re


@dataclasses.dataclass
class Skip:
    """A test, or a part of one, that did not run, and why."""

    test: str
    reason: str


@dataclasses.dataclass
class Outcome:
    """What one program did."""

    program: str
    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    skips: list[Skip] = dataclasses.field(default_factory=list)
    unexpected: list[Skip] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the program passed."""
        return not self.failed and not self.unexpected


@dataclasses.dataclass
class Machine:
    """What decides which skips are right: the kernel's version and the architecture."""

    version: str
    arch: str


@dataclasses.dataclass
class Expected:
    """Skips that are right: in which suites and for which reasons, both regular expressions, and
    on which kernels: those from `since` on, before `before`."""

    suites: str
    reason: str
    why: str
    since: str = ""
    before: str = ""
    arch: str = ""

    def allows(self, skip: Skip, machine: Machine, suite: str) -> bool:
        """Whether this is the reason for a skip."""
        here = version(machine.version)
        return (re.fullmatch(self.suites, suite) is not None and
                re.search(self.reason, skip.reason) is not None and
                (not self.since or here >= version(self.since)) and
                (not self.before or here < version(self.before)) and
                self.arch in ("", machine.arch))


def version(text: str) -> tuple[int, int]:
    """The version of a kernel or of its package, as far as it matters: 6.1.192-2 is (6, 1)."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"{text!r} is no version of a kernel")
    return int(found[1]), int(found[2])


SKIPPED = re.compile(r"skipped: (.*)")
# (A line of a test whose output is not captured may follow its name.)
SKIPPED_TEST = re.compile(r"(?:test (\S+) \.\.\. )?skipped: (.*)")


def libtest(output: str) -> tuple[int, list[str], list[Skip]]:
    """Reads the output of a Rust test program with --show-output."""
    passed, failed, skips, test = 0, [], [], "?"
    for line in output.splitlines():
        if found := re.match(r"---- (\S+) stdout ----", line):
            test = found[1]
        elif found := re.match(r"test result: \w+\. (\d+) passed; (\d+) failed", line):
            passed += int(found[1])
        elif found := re.match(r"test (\S+) \.\.\. FAILED", line):
            failed.append(found[1])
        elif found := re.match(r"test (\S+) \.\.\. ignored(?:, (.*))?", line):
            skips.append(Skip(found[1], f"ignored: {found[2]}"))
        elif found := SKIPPED_TEST.match(line):
            skips.append(Skip(found[1] or test, found[2]))
    return passed, failed, skips


def go(output: str) -> tuple[int, list[str], list[Skip]]:
    """Reads the output of a Go test program with -test.v. Subtests are counted too."""
    passed, failed, skips, test = 0, [], [], "?"
    for line in output.splitlines():
        if found := re.match(r"=== (?:RUN|NAME|CONT)\s+(\S+)", line):
            test = found[1]
        elif found := SKIPPED.search(line):
            skips.append(Skip(test, found[1]))
        elif found := re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+)", line):
            passed += found[1] == "PASS"
            if found[1] == "FAIL":
                failed.append(found[2])
            elif found[1] == "SKIP" and all(skip.test != found[2] for skip in skips):
                skips.append(Skip(found[2], "it gives no reason"))
    return passed, failed, skips


def c(output: str) -> tuple[int, list[str], list[Skip]]:
    """Reads what crates/ringway-c/scripts/run-test.sh prints."""
    passed, failed, skips, waiting = 0, [], [], []
    for line in output.splitlines():
        if found := re.match(r"(\S+) \(plain\): passed", line):
            passed += 1
            skips += [Skip(found[1], reason) for reason in waiting]
            waiting = []
        elif found := re.match(r"(\S+) \(plain\): FAILED", line):
            failed.append(found[1])
            waiting = []
        elif found := SKIPPED.match(line):
            waiting.append(found[1])
    return passed, failed, skips


def alcotest(output: str) -> tuple[int, list[str], list[Skip]]:
    """Reads the output of OCaml's test programs."""
    passed, failed, skips = 0, [], []
    for line in output.splitlines():
        if found := re.search(r"Test Successful in .* (\d+) tests? run", line):
            passed += int(found[1])
        elif found := re.search(r"conformance.*: (\d+) (?:cases|passed)", line):
            passed += int(found[1])
        elif re.search(r"\[FAIL\]", line):
            failed.append(line.strip())
        elif found := SKIPPED.search(line):
            skips.append(Skip("?", found[1]))
    return passed, failed, skips


def plain(output: str) -> tuple[int, list[str], list[Skip]]:
    """A program that is one test: it has to print something."""
    skips = [Skip("", reason) for reason in re.findall(r"^skipped: (.*)", output, re.MULTILINE)]
    return (1 if output.strip() else 0), [], skips


def probe(output: str) -> tuple[int, list[str], list[Skip]]:
    """`ringway probe --json`: threads work everywhere, and each refusal has a meaning and a fix."""
    try:
        backends = json.loads(output)["backends"]
    except (ValueError, KeyError) as error:
        return 0, [f"no report: {error!r}"], []
    failed = [] if backends["threads"]["available"] else ["threads are not available"]

    def follow(name: str, entry: object) -> None:
        if not isinstance(entry, dict):
            return
        if entry.get("available") is False and not (entry.get("meaning") and entry.get("fix")):
            failed.append(f"{name} is refused without an explanation")
        for key, value in entry.items():
            follow(f"{name} {key}".strip(), value)

    follow("", backends)
    return 1, failed, []


def bench(output: str) -> tuple[int, list[str], list[Skip]]:
    """`ringway bench --json`: each job has done requests, and none has failed."""
    try:
        report = json.loads(output[output.index("{"):])
        jobs, not_run = report["jobs"], report["ringway"]["not_run"]
    except (ValueError, KeyError) as error:
        return 0, [f"no report: {error!r}"], []
    failed = [f"{job['jobname']}: error {job['error']}, {job['ringway']['ops']} operations"
              for job in jobs if job["error"] or not job["ringway"]["ops"]]
    return len(jobs), failed, [Skip(job["jobname"], "; ".join(job["notes"])) for job in not_run]


READERS = {"libtest": libtest, "go": go, "c": c, "alcotest": alcotest, "plain": plain,
           "probe": probe, "bench": bench}


def judge(program: str, kind: str, status: int | None, output: str, seconds: float,
          machine: Machine, suite: str, expected: list[Expected]) -> Outcome:
    """What a program that ended has shown."""
    passed, failed, found = READERS[kind](output)
    # A test may say the same for each backend, with a name of its directory.
    skips = list({(skip.test, skip.reason): skip for skip in (
        Skip(skip.test, re.sub(r"/\.tmp\w+", "/.tmp", skip.reason)) for skip in found)}.values())
    failed = list(dict.fromkeys(failed))
    outcome = Outcome(program, passed, failed, skips, seconds=seconds)
    if status is None:
        failed.append("the guest died")
    elif status in (124, 143):
        failed.append(f"no end after {seconds:.0f} s")
    elif status != 0 and not failed:
        failed.append(f"exit status {status}")
    elif status == 0 and not passed and not failed:
        failed.append("no test ran")
    outcome.unexpected = [skip for skip in skips if not any(
        entry.allows(skip, machine, suite) for entry in expected)]
    return outcome


def never_ran(program: str) -> Outcome:
    """A program for which the guest has no result."""
    return Outcome(program, failed=["never ran"])
