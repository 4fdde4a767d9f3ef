"""The results of all kernels: as lines, as a table, as JSON, and in docs/platforms.md."""

import dataclasses
import json
import pathlib

from results import Outcome

BEGIN = "<!-- kernels: written by `make test-kernels WRITE=1` -->"
END = "<!-- kernels: end -->"


@dataclasses.dataclass
class KernelResult:
    """What ran on a kernel: the outcomes of each suite's programs."""

    suite: str
    arch: str
    version: str
    release: str
    suites: dict[str, list[Outcome]]
    probe: str = ""


def reasons(outcome: Outcome) -> str:
    """Why a program failed."""
    skips = [f"unexpected skip of {skip.test}: {skip.reason}" for skip in outcome.unexpected]
    return "; ".join([*outcome.failed, *skips])


def line(kernel: KernelResult, name: str, outcomes: list[Outcome]) -> str:
    """The line of a suite on a kernel."""
    return (f"{kernel.suite} {kernel.version} {kernel.arch}  {name}: {cell(outcomes)}, "
            f"{sum(outcome.seconds for outcome in outcomes):.0f} s")


def cell(outcomes: list[Outcome]) -> str:
    """A suite's result in a few words."""
    passed = sum(outcome.passed for outcome in outcomes)
    skips = sum(len(outcome.skips) for outcome in outcomes)
    failed = sum(not outcome.ok for outcome in outcomes)
    if failed:
        return f"FAILED ({failed} of {len(outcomes)} programs)"
    return f"{passed} passed" + (f", {skips} skipped" if skips else "")


def table(found: list[KernelResult], titles: dict[str, str]) -> str:
    """A Markdown table: a row for each suite, a column for each kernel."""
    head = ["suite", *(f"{kernel.version} {kernel.arch}" for kernel in found)]
    rows = [head, ["---"] * len(head)]
    for name, title in titles.items():
        rows.append([title, *(cell(kernel.suites[name]) if name in kernel.suites else "not run"
                              for kernel in found)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def all_passed(found: list[KernelResult], titles: dict[str, str]) -> bool:
    """Whether every suite has run on every kernel, and passed."""
    return bool(found) and bool(titles) and all(
        kernel.suites.get(name) and all(outcome.ok for outcome in kernel.suites[name])
        for kernel in found for name in titles)


def merge(path: pathlib.Path, found: list[KernelResult], titles: dict[str, str]) -> dict:
    """Writes the results as JSON, over those of earlier runs. Returns all of them."""
    known = json.loads(path.read_text()) if path.exists() else {"titles": {}, "kernels": {}}
    known["titles"].update(titles)
    for kernel in found:
        name = f"{kernel.suite}-{kernel.arch}"
        entry = known["kernels"].setdefault(name, {"suites": {}})
        if entry.get("version") != kernel.version:
            entry["suites"] = {}
        entry.update(version=kernel.version, arch=kernel.arch, release=kernel.release,
                     debian=kernel.suite)
        if kernel.probe:
            entry["probe"] = kernel.probe
        for suite, outcomes in kernel.suites.items():
            entry["suites"][suite] = [dataclasses.asdict(outcome) for outcome in outcomes]
    path.write_text(json.dumps(known, indent=1))
    return known


def write(path: pathlib.Path, known: dict) -> None:
    """Puts the table of all results between the two markers of a page."""
    text = path.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{page(known)}\n\n{END}{after}")


def page(known: dict) -> str:
    """The table of all results, as docs/platforms.md has it."""
    kernels = [KernelResult(entry["debian"], entry["arch"], entry["version"], entry["release"], {
        name: [Outcome(**outcome) for outcome in outcomes]
        for name, outcomes in entry["suites"].items()}) for entry in known["kernels"].values()]
    return table(kernels, known["titles"])
