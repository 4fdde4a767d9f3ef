"""The results of all kernels: as lines, as tables, as JSON, and in docs/platforms.md."""

import contextlib
import dataclasses
import fcntl
import json
import pathlib
from collections.abc import Iterator

import packages
from results import Outcome, Skip

BEGIN = "<!-- kernels: written by `make test-kernels WRITE=1` -->"
END = "<!-- kernels: end -->"

# Rows of the table of what is available: a title, a path in the JSON of `ringway probe`, and what
# is done where it is refused.
FEATURES = [
    ("io_uring", "backends/uring", "kaio"),
    *((f"`{flag}`", f"backends/uring/flags/{flag}", fallback) for flag, fallback in [
        ("SUBMIT_ALL", "without it"),
        ("COOP_TASKRUN", "without it"),
        ("SINGLE_ISSUER", "without it"),
        ("DEFER_TASKRUN", "`COOP_TASKRUN`"),
        ("NO_SQARRAY", "without it"),
        ("SQPOLL", "`io_uring_enter`"),
        ("IOPOLL", "interrupts"),
    ]),
    ("fixed buffers, 8 MiB", "backends/uring/fixed_buffers/8388608", "ordinary buffers"),
    ("fixed files", "backends/uring/options/fixed files", "ordinary descriptors"),
    ("polled direct read, NVMe", "path/io_poll_read", "interrupts"),
    ("NVMe passthrough", "device/passthrough_read", "ordinary reads and writes of the device"),
    ("direct read, ext4", "path/direct_read", "buffered reads, if the program opens it so"),
    ("Linux AIO (kaio)", "backends/kaio", "threads"),
    ("its completions in user space", "backends/kaio/user_ring", "`io_getevents`"),
    ("threads", "backends/threads", ""),
]


@dataclasses.dataclass
class KernelResult:
    """What ran on a kernel: the outcomes of each suite's programs."""

    name: str
    version: str
    release: str
    suites: dict[str, list[Outcome]]
    wanted: list[str] = dataclasses.field(default_factory=list)
    probe: dict = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name and version; the name of a package's kernel ends with the version."""
        known = not self.version or self.name.endswith((f"-{self.version}", f"_{self.version}"))
        return self.name if known else f"{self.name} {self.version}"


def reasons(outcome: Outcome) -> str:
    """Why a program failed."""
    skips = [f"unexpected skip of {skip.test}: {skip.reason}" for skip in outcome.unexpected]
    return "; ".join([*outcome.failed, *skips])


def line(kernel: KernelResult, name: str, outcomes: list[Outcome]) -> str:
    """The line of a suite on a kernel."""
    return (f"{kernel.title}  {name}: {cell(outcomes)}, "
            f"{sum(outcome.seconds for outcome in outcomes):.0f} s")


def cell(outcomes: list[Outcome]) -> str:
    """A suite's result in a few words."""
    passed = sum(outcome.passed for outcome in outcomes)
    skips = sum(len(outcome.skips) for outcome in outcomes)
    failed = sum(not outcome.ok for outcome in outcomes)
    if failed:
        return f"FAILED ({failed} of {len(outcomes)} programs)"
    return f"{passed} passed" + (f", {skips} skipped" if skips else "")


def markdown(rows: list[list[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    return "\n".join("| " + " | ".join(row) + " |"
                     for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def table(found: list[KernelResult], titles: dict[str, str]) -> str:
    """What was run: a row for each suite, a column for each kernel."""
    return markdown([["suite", *(kernel.title for kernel in found)], *(
        [title, *(cell(kernel.suites[name]) if name in kernel.suites else "not run"
                  for kernel in found)] for name, title in titles.items())])


def available(found: list[KernelResult]) -> str:
    """What each kernel has: a row for each feature, a column for each kernel."""
    rows = [["feature", *(kernel.title for kernel in found), "else"]]
    for title, path, fallback in FEATURES:
        rows.append([title, *(has(kernel.probe, path) for kernel in found), fallback])
    return markdown(rows)


def has(probe: dict, path: str) -> str:
    """Whether a probe has found a feature."""
    if not probe:
        return "not run"
    entry: object = probe
    for name in path.split("/"):
        entry = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(entry, dict):
        return "not probed"
    return "yes" if entry["available"] else f"no ({entry['errno_name']})"


def all_passed(found: list[KernelResult]) -> bool:
    """Whether every wanted suite has run on every kernel, and passed."""
    return bool(found) and all(
        kernel.wanted and kernel.suites.get(name) and
        all(outcome.ok for outcome in kernel.suites[name])
        for kernel in found for name in kernel.wanted or [""])


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Keeps other runs, of other kernels, away from the file meanwhile."""
    with open(path.with_suffix(".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def merge(path: pathlib.Path, kernel: KernelResult, suite: str) -> None:
    """Adds the results of a suite to those in a file. Those of an older kernel go."""
    with locked(path):
        known = json.loads(path.read_text()) if path.exists() else {"kernels": {}}
        entry = known["kernels"].setdefault(kernel.name, {"suites": {}})
        if entry.get("version") != kernel.version:
            entry["suites"], entry["probe"] = {}, {}
        entry.update(version=kernel.version, release=kernel.release)
        entry["probe"] = kernel.probe or entry["probe"]
        entry["suites"][suite] = [dataclasses.asdict(outcome) for outcome in kernel.suites[suite]]
        path.write_text(json.dumps(known, indent=1))


def add_probe(kernel: KernelResult, program: str, probe: dict) -> None:
    """Adds the report of a probe: that of the machine, or that of a device."""
    if program == "device":
        # The device of NVMe passthrough came with kernel 5.13.
        missing = {"passthrough_read": {"available": False, "errno_name": "no device"}}
        kernel.probe["device"] = probe["path"] or missing
    else:
        kernel.probe.update(probe)


def write(page: pathlib.Path, found: pathlib.Path, names: list[str],
          titles: dict[str, str]) -> None:
    """Puts the tables of all results in a file between the two markers of a page."""
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    with locked(found):
        known = json.loads(found.read_text())["kernels"]
    text = tables(known, names, titles)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def tables(known: dict, names: list[str], titles: dict[str, str]) -> str:
    """What is available and what was run: every suite, on the named kernels and all others known.

    Whatever has no result was not run.
    """
    columns = [packages.Wanted.parse(name).name for name in names]
    kernels = []
    for name in dict.fromkeys([*columns, *known]):
        entry = known.get(name, {"version": "", "release": "", "suites": {}, "probe": {}})
        kernels.append(KernelResult(name, entry["version"], entry["release"], {
            suite: [read(outcome) for outcome in outcomes]
            for suite, outcomes in entry["suites"].items()}, probe=entry["probe"]))
    return f"{available(kernels)}\n\n{table(kernels, titles)}"


def read(outcome: dict) -> Outcome:
    """An outcome that was written as JSON."""
    return Outcome(**{**outcome, "skips": [Skip(**skip) for skip in outcome["skips"]],
                      "unexpected": [Skip(**skip) for skip in outcome["unexpected"]]})
