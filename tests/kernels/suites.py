"""The suites: which programs each runs in a guest, in what surroundings, and which skips are right.
"""

import dataclasses
import os
import pathlib
import shlex

import guest
import programs
import survey
from results import Expected

ROOT = guest.ROOT
# What Rust tests read at run time.
SOURCES = ["conformance", "crates/ringway-core", "crates/ringway", "crates/ringway-cli", "docs"]
CONFORMANCE = "ringway-core/conformance"
POLLED = "ringway-core/polled"
PASSTHROUGH = "ringway-core/passthrough"
# (Its path in the guest: the one of busybox, which its shell prefers, changes no user.)
AS_USER = "/usr/sbin/setpriv --reuid 1000 --regid 1000 --clear-groups "


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
    programs: list[Program]
    files: list[pathlib.Path]
    modules: list[str] = dataclasses.field(default_factory=list)
    # The program that records here what the suite has observed there, if that is wanted.
    recorder: pathlib.Path | None = None


# Surroundings of the conformance suite: lines before it.
XFS = "umount /virtio && mkfs.xfs -q -f /dev/vda && mount -t xfs /dev/vda /virtio && " \
    "chmod 1777 /virtio && export TMPDIR=/virtio"
DM = "umount /virtio && dmsetup create ringway --table " \
    "\"0 $(blockdev --getsz /dev/vda) linear /dev/vda 0\" && mkfs.ext4 -q -F " \
    "/dev/mapper/ringway && mount /dev/mapper/ringway /virtio && chmod 1777 /virtio && " \
    "export TMPDIR=/virtio"
LOOP = "truncate -s 3G /disk/loop && loop=$(/usr/sbin/losetup --sector-size 4096 " \
    "--direct-io=on -f --show /disk/loop) && mkfs.ext4 -q -b 4096 $loop && " \
    "mkdir -p /loop && mount $loop /loop && chmod 1777 /loop && export TMPDIR=/loop"
NO_URING = "if test -e /proc/sys/kernel/io_uring_disabled; then " \
    "echo 2 >/proc/sys/kernel/io_uring_disabled; else refuse={refuse}; fi"
NVME = "export RINGWAY_TEST_NVME='/dev/ng0n2 /dev/ng0n3'"
NO_AIO = "echo 0 >/proc/sys/fs/aio-max-nr"

# The tests that run on each file system, the programs that one of them runs, and the file systems
# that need a guest (parts of their names); and those that are only read. (`std_parity`, `matrix`
# and the storm take an hour there.)
ON_FILE_SYSTEMS = [("ringway-core/other_file_systems", "all_cases"),
                   ("ringway-survey/suites", "--ignored --nocapture")]
NESTED = ["ringway-core/conformance", "ringway-core/model", "ringway/streams",
          "ringway/guarantees"]
PLACES = ["f2fs", "dm-linear", "dm-crypt", "dm-integrity", "RAID 1", "NFS", "9p", "virtiofs"]
READ_ONLY = [("ringway-core/read_only_file_systems", "")]
READ_ONLY_PLACES = "squashfs|erofs|hugetlbfs"

# The suites, in the order in which they run, and their titles.
TITLES = {
    "probe": "`ringway probe`",
    "conformance": "Rust core: conformance, and IOPOLL on NVMe",
    "core": "Rust core: the other tests",
    "core-user": "Rust core, ordinary user",
    "passthrough": "NVMe passthrough",
    "engine": "Rust engine",
    "xfs": "Rust core on XFS",
    "loop": "Rust core on a loop device with 4 KiB blocks",
    "dm": "Rust core on a dm-linear target",
    "no-uring": "Rust core without io_uring",
    "no-aio": "Rust core without io_uring and AIO",
    "c": "C",
    "c-user": "C, ordinary user",
    "go": "Go",
    "go-user": "Go, ordinary user",
    "ocaml": "OCaml",
    "survey": "what file systems do",
    "file-systems": "Rust core and engine on file systems",
    "bench": "`ringway bench`",
    "soak": "soak",
}
RUST_TESTS = ["conformance", "core", "core-user", "passthrough", "engine", "xfs", "loop", "dm",
              "no-uring", "no-aio"]

ANY_CORE = "conformance|core|core-user|engine|xfs|loop|dm|no-uring|no-aio"
ON_FILES = f"{ANY_CORE}|file-systems"
EXPECTED_SKIPS = [
    # What a kernel does not have.
    Expected(ANY_CORE, "no io_uring|^(uring: )?io_uring refused: (ENOSYS|EOPNOTSUPP|EINVAL)",
             "io_uring is of 5.1, what queues need of it of 5.6", before="5.6"),
    Expected(ANY_CORE, "openat2 is of Linux 5.6", "it is", before="5.6"),
    Expected("core", "registered rings are of 5.18", "they are", before="5.18"),
    Expected("core", "no such ring: .*Uring, errno: 22", "big entries are of 5.19", before="5.19"),
    Expected("core", "no io_uring with one issuer", "it is of 6.0", before="6.0"),
    Expected(ANY_CORE, "no direct I/O on (/dev/shm|this file system)|direct I/O on tmpfs",
             "the cases in memory: tmpfs has it from 6.6 on", before="6.6"),
    Expected(ON_FILES, "the disk's file system has no RWF_DONTCACHE", "it is of 6.14",
             before="6.14"),
    Expected("file-systems", "^(f2fs|NFS|9p|virtiofs).*: the disk's file system has no "
             "RWF_DONTCACHE", "later, too, only some have it"),
    Expected(ON_FILES, "a kernel before 6.16 has no untorn writes on XFS", "it has not",
             before="6.16"),
    Expected("core", "pipes do not support RWF_NOWAIT", "they do from 6.5 on", before="6.5"),
    Expected("core|core-user|engine", "this kernel does not charge rings",
             "from 5.12 on, and in Debian's 5.10, their memory counts as the process's"),
    Expected(ANY_CORE, "has no kernel.io_uring_disabled", "the sysctl is of 6.6", before="6.6"),
    Expected("ocaml|c|c-user", "no direct I/O on tmpfs", "tmpfs has it from 6.6 on", before="6.6"),
    Expected("go|go-user",
             "is older than 5.1[89]|opcode (3[5-9]|4[0-9])$|io_uring_register: invalid",
             "what came with 5.11 to 6.0", before="6.0"),
    Expected("go|go-user", "is older than 6.0", "what came with 6.0", before="6.0"),
    Expected("go|go-user", "is older than 6.4", "what came with 6.4", before="6.4"),
    Expected("go|go-user", "opcode 49$", "what came with 6.7", before="6.7"),
    Expected("go|go-user", "opcode 5[0-9]$", "what came with 6.5 to 6.11", before="6.12"),
    Expected("go|go-user", "this file system has no direct I/O",
             "the test program is in memory: tmpfs has it from 6.6 on", before="6.6"),
    Expected("go|go-user", "does not report what is cached", "RWF_NOWAIT is used from 5.11 on",
             before="5.11"),
    Expected("go|go-user", "does not count the pages", "cachestat is of 6.5", before="6.5"),
    Expected("core", "a kernel before 6.8 has no numbers of mounts", "it has not", before="6.8"),
    Expected("core", "makes EIO of each error of a cached read", "seen on 7.2, not on 6.18",
             since="6.19"),
    Expected("passthrough", "no NVMe generic devices", "they came with 5.13", before="5.13"),
    # What a guest does not have.
    Expected(ON_FILES, "too little memory for (a buffer over 4 GiB|4 GiB of fixed buffers)",
             "a guest has 6 GiB"),
    Expected("core", "needs direct I/O and a device without polling", "its NVMe disk has a queue "
             "for polling"),
    Expected("go|go-user", "no C compiler",
             "its test compares with the headers of the build machine"),
    Expected("go|go-user", "RINGWAY_LONG is not set", "takes ten minutes on a real machine"),
    # What a suite takes away.
    Expected("no-uring|no-aio", "uring: io_uring refused", "the suite runs without it"),
    Expected("no-aio", "kaio: Linux AIO refused", "the suite runs without it"),
    # What a backend does not have.
    Expected("ocaml", "only a ring can fail|kaio reads such files on threads",
             "faults of a ring on the other backends"),
    Expected("survey", "no io_uring that tells who served a request",
             "its rings are of 6.1", before="6.1"),
    Expected("survey|file-systems", "this kernel has no",
             "rows that need it are for other kernels"),
    Expected("survey|file-systems", "the kernel lacks InitFlags.FUSE_PASSTHROUGH", "it is of 6.9",
             before="6.9"),
    # What the build machine does not have.
    Expected("survey|file-systems", "^NFS 4.2: exportfs: No such file or directory",
             "installing an NFS server starts it there"),
    Expected("survey|file-systems", "^virtiofs: no virtiofsd serves this guest$",
             "virtiofsd works for root only"),
    Expected("ocaml", "OCaml 4 has one domain", "domains are of OCaml 5"),
    # What an ordinary user may not do.
    Expected("core-user", "only root may", "the suite runs as a user"),
    Expected("go-user", "only root (mounts|has loop devices)", "the suite runs as a user"),
    # Tests that run on demand.
    Expected("file-systems", "^no file system (to write to|that is only read) is selected$",
             "RINGWAY_PLACE selects the other ones"),
    Expected("core|core-user|engine", "RINGWAY_FILE_SYSTEMS is not set",
             "the suite file-systems sets it"),
    Expected("core", "ignored: uses up fs.aio-max-nr", "it takes KAIO from the whole machine"),
    Expected("engine|file-systems", "kaio: injected faults do not reach "
             "(buffered writes|direct writes on ext4|sync_file_range)",
             "they run on the fallback threads"),
    Expected("engine|file-systems", "ignored: runs in the child process of the next test",
             "it runs there"),
]
# Programs that are left out, and why.
EXCLUDED = {
    "ringway-core/large_copies": "it bounds processor time, which an emulated processor exceeds",
    "ringway-core/other_systems": "it has tests for other systems only",
    "ringway-core/layers": "it reads the sources",
    "ringway-core/workspaces": "it reads the sources",
}


def rust(name: str, chosen: list[tuple[str, str]], built: dict[str, pathlib.Path], arch: str, *,
         before: str = ":", under: str = "", files: list[pathlib.Path],
         seconds: int = 1800) -> Suite:
    """A suite of Rust test programs, each with its arguments."""
    # They make their files here and in their crate's directory, so both are on the guest's disk.
    scratch = programs.scratch(arch)
    made = []
    for program, arguments in chosen:
        crate = ROOT / "crates" / program.split("/")[0]
        made.append(Program(f"{program} {arguments}".strip(), (
            f"umount {scratch} {crate} 2>/dev/null; mkdir -p {scratch}; {before}\n"
            f"export RINGWAY_WATCHDOG=900\n"
            f"rm -rf $TMPDIR/crate && cp -r {crate} $TMPDIR/crate && "
            f"mount --bind $TMPDIR/crate {crate} && mount --bind $TMPDIR {scratch} && "
            f"cd {crate} && "
            f"exec $refuse {under}{built[program]} --show-output {arguments}"), "libtest", seconds))
    return Suite(name, made, [*(built[program] for program, _ in chosen), *files])


def bench_programs(command: pathlib.Path) -> list[Program]:
    """The bench's matrix in small, every byte checked, on the NVMe disk."""
    def line(options: str) -> str:
        return (f"{command} bench --size 16m --runtime 50ms --ramp 0ms --repeat 1 --verify --quiet "
                f"--scratch /disk --json /tmp/bench {options} >/tmp/text && cat /tmp/bench")

    return [
        Program("backends", line("--backend uring,kaio,threads,null --rw randread,randwrite "
                                 "--direct 0,1 --depth 1,32"), "bench"),
        Program("options", line("--backend uring --rw randread,randwrite --depth 8 --sqpoll 0,1 "
                                "--iopoll 0,1 --fixed-buffers 0,1 --fixed-files 0,1"), "bench"),
    ]


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
        Program("queue_test", f"export ALCOTEST_VERBOSE=true; {tests}/ringway/queue_test.exe",
                "alcotest"),
        Program("conformance", f"export RINGWAY_CONFORMANCE={ROOT}/conformance; "
                f"{tests}/ringway/conformance.exe", "plain"),
        Program("torture", f"OCAMLRUNPARAM=s=4k {tests}/ringway/torture.exe", "plain"),
    ]
    for way in ("engine", "uring", "kaio", "threads"):
        for test in ("test_dispatcher", "test_file", "test_unix"):
            made.append(Program(f"{test} {way}",
                                f"export ALCOTEST_VERBOSE=true; RINGWAY_TEST_WAY={way} "
                                f"{tests}/file/{test}.exe", "alcotest"))
    return made


def all_suites(arch: str, wanted: list[str], soak: str, recording: bool) -> list[Suite]:
    """Builds what the wanted suites need, and returns them. Without names, all are wanted."""
    def want(*names: str) -> bool:
        return not wanted or any(name in wanted for name in names)

    made: list[Suite] = []
    if want(*RUST_TESTS):
        made += rust_suites(arch, want("engine"))
    if want("probe", "bench", "soak"):
        made += command_suites(arch, soak, want("probe", "bench"), want("soak"))
    if want("c", "c-user"):
        build = programs.c(arch)
        files = [build, ROOT / "conformance", ROOT / "crates/ringway-c/scripts",
                 ROOT / "crates/ringway-c/tests", ROOT / "crates/ringway-c/include"]
        made.append(Suite("c", c_programs(build, ""), files))
        made.append(Suite("c-user", c_programs(build, AS_USER), files))
    if want("go", "go-user"):
        tests = programs.go(arch)
        files = [*tests.values(), ROOT / "go", ROOT / "conformance", ROOT / "docs"]
        for name, under in (("go", ""), ("go-user", AS_USER)):
            made.append(Suite(name, [go_program(package, path, under)
                                            for package, path in tests.items()], files))
    if arch == guest.initramfs.HOST and want("ocaml"):
        tests = programs.ocaml()
        made.append(Suite("ocaml", ocaml_programs(tests),
                          [tests, ROOT / "conformance"]))
    if arch == guest.initramfs.HOST and want("survey"):
        made.append(survey_suite(arch, recording))
    # (It takes hours, and a kernel that has all of them.)
    if arch == guest.initramfs.HOST and "file-systems" in wanted:
        made.append(file_systems_suite(arch))
    order = {name: number for number, name in enumerate(TITLES)}
    return sorted((suite for suite in made if want(suite.name)),
                  key=lambda suite: order[suite.name])


def command_suites(arch: str, soak: str, command: bool, with_soak: bool) -> list[Suite]:
    """The suites of the command line and of the soak."""
    built = programs.rust(arch, [], ["ringway-cli"] * command + ["ringway-torture"] * with_soak)
    made = []
    if command:
        ringway = built["ringway"]
        made.append(Suite("probe", [
            Program("machine", f"{ringway} probe --json /disk", "probe", 240),
            # (Without an argument before kernel 5.13, which has no such device.)
            Program("device", f"{ringway} probe --json $(ls /dev/ng0n2 2>/dev/null)", "probe",
                    240)], [ringway]))
        made.append(Suite("bench", bench_programs(ringway), [ringway]))
    if with_soak:
        made.append(Suite("soak", [Program(
            "soak", f"{built['soak']} {soak} --dir /disk", "plain", 3600)], [built["soak"]]))
    return made


def survey_suite(arch: str, recording: bool) -> Suite:
    """The suite that observes file systems, with this machine's tools."""
    built = programs.rust(arch, ["ringway-survey"], ["ringway-hostile"],
                          ["ringway-survey/file_systems"])
    server, test = built["hostile-fs"], "ringway-survey/file_systems"
    # (The page is compared here.)
    chosen = [(test, "they_do")] if recording else [(test, "they_do"), (test, "side_by_side")]
    made = rust("survey", chosen, built, arch,
                before=survey.environment(server, recording),
                files=[*survey.files(), server], seconds=7200)
    return dataclasses.replace(made, modules=survey.MODULES,
                               recorder=built[test] if recording else None)


def file_systems_suite(arch: str) -> Suite:
    """What `make test-file-systems` runs, on file systems that the machine's kernel may lack."""
    tests = [*(name for name, _ in (*ON_FILE_SYSTEMS, *READ_ONLY)), *NESTED]
    built = programs.rust(arch, ["ringway-survey", "ringway-core", "ringway"], ["ringway-hostile"],
                          tests)
    nested = {name.split("/")[1]: built[name] for name in NESTED}
    files = [*survey.files(), *(ROOT / source for source in SOURCES), *nested.values(),
             built["hostile-fs"]]
    made = []
    for place, tests in chosen_places():
        words = {"PLACE": place, "FILE_SYSTEMS": "all",
                 "SUITE": os.environ.get("RINGWAY_SUITE", ""),
                 "PROGRAMS": " ".join(f"{name}={path}" for name, path in nested.items())}
        exports = " ".join(f"RINGWAY_{name}={shlex.quote(text)}" for name, text in words.items())
        here = rust("file-systems", tests, built, arch, files=[], seconds=7200,
                    before=f"{survey.environment(built['hostile-fs'], False)} {exports}")
        made += [dataclasses.replace(program, name=f"{place}: {program.name}")
                 for program in here.programs]
        files += here.files
    return Suite("file-systems", made, files, survey.MODULES)


def chosen_places() -> list[tuple[str, list[tuple[str, str]]]]:
    """Parts of names of file systems, and the tests that run on those."""
    place = os.environ.get("RINGWAY_PLACE")
    if place:
        # (Those that have nothing to do there skip it.)
        return [(place, [*ON_FILE_SYSTEMS, *READ_ONLY])]
    servers = {"NFS": guest.initramfs.find_tool("exportfs"), "virtiofs": guest.virtiofsd()}
    missing = [name for name, server in servers.items() if server is None]
    for name in missing:
        print(f"left out: {name}: this machine has no server for it")
    return [*((name, ON_FILE_SYSTEMS) for name in PLACES if name not in missing),
            (READ_ONLY_PLACES, READ_ONLY)]


def rust_suites(arch: str, with_engine: bool) -> list[Suite]:
    """The suites of the Rust crates."""
    crates = ["ringway-core"] + ["ringway"] * with_engine
    # (This machine's tools make file systems, so a guest of another processor has none.)
    here = arch == guest.initramfs.HOST
    built = programs.rust(arch, crates, ["ringway-hostile"] * here)
    for name, why in EXCLUDED.items():
        print(f"left out: {name}: {why}")
    refuse = programs.refuse(arch)
    no_uring = NO_URING.format(refuse=refuse)
    examples = [path for path in built.values() if "/examples/" in str(path)]
    files = [*(ROOT / source for source in SOURCES), *examples, refuse]
    others = [(name, "") for name in built if name.startswith("ringway-core/") and
              name not in (*EXCLUDED, CONFORMANCE, POLLED, PASSTHROUGH)]
    # All cases without restrictions, each a test; and the tests of restrictions.
    full = (CONFORMANCE, "--skip leg::")
    legs = (CONFORMANCE, "leg::")

    def restricted(name: str, before: str) -> Suite:
        return rust(name, [full], built, arch, before=before, files=files)

    if here:
        server = built["hostile-fs"]
        core = rust("core", [legs, *others], built, arch,
                    before=f"export RINGWAY_HOSTILE_FS={server}",
                    files=[*files, *survey.files(), server])
        core = dataclasses.replace(core, modules=survey.MODULES)
    else:
        core = rust("core", [legs, *others], built, arch, files=files)
    made = [
        rust("conformance", [(POLLED, ""), full],
             built, arch, files=files),
        core,
        rust("core-user", [full, legs], built, arch, under=AS_USER,
             files=files),
        rust("passthrough", [(PASSTHROUGH, "")], built, arch, before=NVME, files=files),
        restricted("xfs", XFS),
        restricted("loop", LOOP),
        restricted("dm", DM),
        restricted("no-uring", no_uring),
        restricted("no-aio", f"{no_uring}\n{NO_AIO}"),
    ]
    if with_engine:
        engine = [(name, "") for name in built if name.startswith("ringway/")]
        made.append(rust("engine", engine, built, arch, files=files))
    return made
