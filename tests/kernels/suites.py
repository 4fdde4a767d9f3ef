"""The suites: which programs each runs in a guest, in what surroundings, and which skips are right.
"""

import dataclasses
import pathlib
import shlex

import guest
import programs
from results import Expected

ROOT = guest.ROOT
# Tests of the Rust crates make their files here, so the guest's disk is mounted on it.
SCRATCH = programs.BUILD / "tmp"
# What Rust tests read at run time.
SOURCES = ["conformance", "crates/ringway-core", "crates/ringway", "crates/ringway-cli", "docs"]
CONFORMANCE = "ringway-core/conformance"
PASSTHROUGH = "ringway-core/passthrough"
AS_USER = "setpriv --reuid 1000 --regid 1000 --clear-groups "


@dataclasses.dataclass
class Program:
    """A program of a suite: a line for the guest's shell, and how to read its output."""

    name: str
    line: str
    kind: str
    seconds: int = 600


@dataclasses.dataclass
class Suite:
    """Programs that belong together, and what they need in the guest."""

    name: str
    title: str
    programs: list[Program]
    files: list[pathlib.Path]


# Surroundings of the conformance suite: a name, a title, and lines before and after it.
XFS = "umount /virtio && mkfs.xfs -q -f /dev/vda && mount -t xfs /dev/vda /virtio && " \
    "chmod 1777 /virtio && export TMPDIR=/virtio"
LOOP = "truncate -s 3G /disk/loop && loop=$(losetup --sector-size 4096 --direct-io=on -f --show " \
    "/disk/loop) && mkfs.ext4 -q -b 4096 $loop && mkdir -p /loop && mount $loop /loop && " \
    "chmod 1777 /loop && export TMPDIR=/loop"
NO_URING = "if test -e /proc/sys/kernel/io_uring_disabled; then " \
    "echo 2 >/proc/sys/kernel/io_uring_disabled; else refuse={refuse}; fi"
NVME = "export RINGWAY_TEST_NVME='/dev/ng0n2 /dev/ng0n3'"
NO_AIO = "echo 0 >/proc/sys/fs/aio-max-nr"

EXPECTED_SKIPS: list[Expected] = []
# Programs that are left out, and why.
EXCLUDED = {
    "ringway-core/enter": "it bounds processor time, which an emulated processor exceeds",
}


def rust(name: str, title: str, chosen: dict[str, pathlib.Path], *, before: str = ":",
         under: str = "", arguments: str = "", files: list[pathlib.Path] | None = None,
         seconds: int = 900) -> Suite:
    """A suite of Rust test programs."""
    made = []
    for program, path in chosen.items():
        crate = ROOT / "crates" / program.split("/")[0]
        # Its longest test has a result of its own.
        parts = ["unrestricted", "--skip unrestricted"] \
            if program == CONFORMANCE and not arguments else [arguments]
        for part in parts:
            made.append(Program(f"{program} {part}".strip(), (
                f"umount {SCRATCH} 2>/dev/null; mkdir -p {SCRATCH}; {before}\n"
                f"mount --bind $TMPDIR {SCRATCH} && cd {crate} && "
                f"exec $refuse {under}{path} --show-output {part}"), "libtest", seconds))
    return Suite(name, title, made, [*chosen.values(), *(files or [])])


def c_programs(build: pathlib.Path, under: str) -> list[Program]:
    """The C tests. They and their files are on the disk, since memory has no direct I/O."""
    crate = ROOT / "crates/ringway-c"
    made = []
    for program in sorted([*build.glob("tests/*.c*"), *build.glob("ioqueuemt/tests/*.c*")]):
        place = f"/disk/c{program.parent.relative_to(build)}"
        source = f"tests/{program.name}"
        cases = "" if program.name.startswith("ioqueue") else f" {ROOT}/conformance"
        made.append(Program(f"{program.parent.relative_to(build)}/{program.name}", (
            f"mkdir -p {place} && cp {program} {place} && chmod -R 777 /disk/c* && cd {crate} && "
            f"{under}scripts/run-test.sh plain {source} {place}/{program.name}{cases}"), "c", 660))
    return made


def go_program(name: str, path: pathlib.Path, under: str) -> Program:
    """A Go test program, which runs in its package's directory."""
    return Program(name, (f"cd {ROOT}/go/{name} && export HOME=/tmp && "
                          f"{under}{path} -test.v -test.timeout 30m"), "go", 1800)


def ocaml_programs(tests: pathlib.Path) -> list[Program]:
    """The OCaml tests that dune runs."""
    made = [
        Program("queue_test", f"{tests}/ringway/queue_test.exe", "alcotest"),
        Program("conformance", f"export RINGWAY_CONFORMANCE={ROOT}/conformance; "
                f"{tests}/ringway/conformance.exe", "plain"),
        Program("torture", f"OCAMLRUNPARAM=s=4k {tests}/ringway/torture.exe", "plain"),
    ]
    for way in ("engine", "uring", "kaio", "threads"):
        for test in ("test_dispatcher", "test_file", "test_unix"):
            made.append(Program(f"{test} {way}",
                                f"RINGWAY_TEST_WAY={way} {tests}/file/{test}.exe", "alcotest"))
    return made


def all_suites(arch: str, wanted: list[str], soak: str) -> list[Suite]:
    """Builds what the wanted suites need, and returns them. Without names, all are wanted."""
    def want(*names: str) -> bool:
        return not wanted or any(name in wanted for name in names)

    made: list[Suite] = []
    sources = [ROOT / source for source in SOURCES]
    built = programs.rust(arch)
    core = {name: path for name, path in built.items()
            if name.startswith("ringway-core/") and name not in EXCLUDED}
    for name, why in EXCLUDED.items():
        print(f"left out: {name}: {why}")
    passthrough = {PASSTHROUGH: core.pop(PASSTHROUGH)}
    engine = {name: path for name, path in built.items() if name.startswith("ringway/")}
    examples = [path for name, path in built.items() if "/examples/" in str(path)]
    conformance = {CONFORMANCE: core[CONFORMANCE]}
    refuse = programs.refuse(arch)
    no_uring = NO_URING.format(refuse=refuse)
    everything = [*sources, *examples, refuse]

    made.append(Suite("probe", "`ringway probe`", [
        Program("probe", f"{built['ringway']} probe", "plain", 120)], [built["ringway"]]))
    made.append(rust("core", "Rust core", core, files=everything, seconds=1800))
    made.append(rust("core-user", "Rust core, ordinary user", conformance, under=AS_USER,
                     files=everything))
    made.append(rust("passthrough", "NVMe passthrough", passthrough, before=NVME))
    made.append(rust("engine", "Rust engine", engine, files=everything, seconds=1800))
    made.append(rust("xfs", "Rust core on XFS", conformance, before=XFS, files=everything,
                     arguments="unrestricted"))
    made.append(rust("loop", "Rust core on a loop device with 4 KiB blocks", conformance,
                     before=LOOP, files=everything, arguments="unrestricted"))
    made.append(rust("no-uring", "Rust core without io_uring", conformance, before=no_uring,
                     files=everything, arguments="unrestricted"))
    made.append(rust("no-aio", "Rust core without io_uring and AIO", conformance,
                     before=f"{no_uring}\n{NO_AIO}", files=everything, arguments="unrestricted"))
    made.append(Suite("soak", "soak", [Program(
        "soak", f"{built['soak']} {soak} --dir /disk", "plain", 3600)], [built["soak"]]))
    if want("c", "c-user"):
        build = programs.c(arch)
        files = [build, ROOT / "conformance", ROOT / "crates/ringway-c/scripts",
                 ROOT / "crates/ringway-c/tests"]
        made.append(Suite("c", "C", c_programs(build, ""), files))
        made.append(Suite("c-user", "C, ordinary user", c_programs(build, AS_USER), files))
    if want("go", "go-user"):
        tests = programs.go(arch)
        files = [*tests.values(), ROOT / "go", ROOT / "conformance", ROOT / "docs"]
        for name, title, under in (("go", "Go", ""), ("go-user", "Go, ordinary user", AS_USER)):
            made.append(Suite(name, title, [go_program(package, path, under)
                                            for package, path in tests.items()], files))
    if arch == guest.initramfs.HOST and want("ocaml"):
        tests = programs.ocaml()
        made.append(Suite("ocaml", "OCaml", ocaml_programs(tests),
                          [tests, ROOT / "conformance"]))
    return [suite for suite in made if want(suite.name)]


def check_names(names: list[str], known: list[str]) -> None:
    """Refuses names of suites that do not exist."""
    for name in names:
        if name not in known:
            raise SystemExit(f"run.py: there is no suite {shlex.quote(name)}")
