"""What a test program's output and exit status mean, and which skips are expected.

A program passes only if it ended with status 0, its output says that tests ran, and every skip is
in EXPECTED_SKIPS. A program that prints nothing, dies, or never ran has failed.
"""

import dataclasses
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
class Expected:
    """Skips that are expected: on which kernels and in which suites, by regular expressions."""

    kernels: str
    suites: str
    reason: str
    why: str


SKIPPED = re.compile(r"skipped: (.*)")


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
        elif found := SKIPPED.match(line):
            skips.append(Skip(test, found[1]))
    return passed, failed, skips


def go(output: str) -> tuple[int, list[str], list[Skip]]:
    """Reads the output of a Go test program with -test.v. Subtests are counted too."""
    passed, failed, skips, above = 0, [], [], ""
    for line in output.splitlines():
        if found := re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+)", line):
            passed += found[1] == "PASS"
            if found[1] == "FAIL":
                failed.append(found[2])
            elif found[1] == "SKIP":
                reason = SKIPPED.search(above)
                if reason:
                    skips.append(Skip(found[2], reason[1]))
        elif found := re.match(r"skipped: (.*)", line):
            skips.append(Skip("examples", found[1]))
        above = line
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


READERS = {"libtest": libtest, "go": go, "c": c, "alcotest": alcotest, "plain": plain}


def judge(program: str, kind: str, status: int | None, output: str, seconds: float,
          kernel: str, suite: str, expected: list[Expected]) -> Outcome:
    """What a program that ended has shown."""
    passed, failed, skips = READERS[kind](output)
    outcome = Outcome(program, passed, failed, skips, seconds=seconds)
    if status is None:
        failed.append("the guest died")
    elif status in (124, 143):
        failed.append(f"no end after {seconds:.0f} s")
    elif status != 0 and not failed:
        failed.append(f"exit status {status}")
    elif status == 0 and not passed:
        failed.append("no test ran")
    for skip in skips:
        if not any(re.fullmatch(entry.kernels, kernel) and re.fullmatch(entry.suites, suite) and
                   re.search(entry.reason, skip.reason) for entry in expected):
            outcome.unexpected.append(skip)
    return outcome


def never_ran(program: str) -> Outcome:
    """A program for which the guest has no result."""
    return Outcome(program, failed=["never ran"])
