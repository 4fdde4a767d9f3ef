"""Debian's kernels: fetches one with apt and unpacks it, and the tools of guests of another
architecture.

apt runs with package lists and a cache of its own below target/kernels, so neither the machine's
list of sources nor its installed packages matter. The mirror is DEBIAN_MIRROR, or else the one the
machine's apt uses for Debian.
"""

import dataclasses
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Modules that guests load where the kernel has them and has not built them in.
MODULES = ["virtio_pci", "virtio_blk", "nvme", "crc32c_generic", "ext4", "loop", "xfs", "dm_mod"]
# Parameters of modules. The kernel's command line reaches only those that are built in.
PARAMETERS = {"nvme": "poll_queues=1"}
# The packages with the tools of a guest whose architecture is not this machine's.
TOOLS = ["busybox-static", "e2fsprogs", "xfsprogs", "util-linux", "mount", "dmsetup", "libstdc++6"]


HELP = """One .deb, or several joined by commas, must hold the kernel's image and, unless they are
built in, its modules for NVMe and ext4: the linux-image package of Debian up to 13, or Ubuntu's
linux-image-unsigned and linux-modules. SUITE then only names the results and, for this machine's
architecture, may be any name; for another one it is the suite of Debian that the guest's tools are
from. Debian's snapshot archive has older packages. Kernels that are packaged as RPM cannot be
tested.

DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR are the archives that packages are fetched from; without
them, those that apt uses here. ACCEL=kvm or ACCEL=tcg chooses how QEMU runs the guest; without it,
KVM where it works. What is fetched and the results are in target/kernels, or in kernels below
CARGO_TARGET_DIR.
"""
# What a guest cannot do without, as a module or built in.
NEEDED = ["virtio_blk", "nvme", "ext4"]


class FetchError(Exception):
    """A package could not be fetched; the text says which, and what to do."""


@dataclasses.dataclass
class Wanted:
    """A kernel to fetch: the newest cloud kernel of a suite, or packages of its own."""

    suite: str
    arch: str = "amd64"
    package: str = ""

    @classmethod
    def parse(cls, text: str) -> "Wanted":
        """Reads `SUITE[-ARCH][:PACKAGE]`. PACKAGE is a name in the suite or paths of .deb."""
        place, colon, package = text.partition(":")
        found = re.fullmatch(r"([a-z][a-z-]*?)(?:-(amd64|arm64))?", place)
        if not found or not re.fullmatch(r"[\w./+~,-]*", package) or colon and not package:
            hint = "; a file needs a name before it, SUITE:FILE" if "/" in place else ""
            raise FetchError(f"{text!r} is no kernel: use SUITE, SUITE-amd64, SUITE-arm64 or "
                             f"SUITE:PACKAGE{hint}")
        wanted = cls(found[1], found[2] or "amd64", package)
        for file in wanted.files:
            if not file.endswith(".deb") or not pathlib.Path(file).is_file():
                raise FetchError(f"{file!r}: no such .deb; several files are joined by commas")
        return wanted

    @property
    def files(self) -> list[str]:
        """The paths of its packages, if they are not fetched."""
        is_name = re.fullmatch(r"[^/,]*", self.package) and not self.package.endswith(".deb")
        return [] if is_name else self.package.split(",")

    @property
    def name(self) -> str:
        """The name of its results and of its directories."""
        package = pathlib.Path(self.package.split(",")[0]).name
        # The files of packages are named NAME_VERSION_ARCH.deb. (One version has several flavours,
        # which are in the name.)
        found = re.fullmatch(r"(?:linux-image-(?:unsigned-)?)?([^_]+_[^_]+)_[^_]+[.]deb", package)
        package = found[1] if found else package.removesuffix(".deb")
        return f"{self.suite}-{self.arch}" + (f"-{package}" if package else "")


@dataclasses.dataclass
class Kernel:
    """A kernel that was unpacked: its image and the modules to load, in that order."""

    wanted: Wanted
    version: str
    image: pathlib.Path
    modules: list[pathlib.Path]
    tree: pathlib.Path

    @property
    def arch(self) -> str:
        """Its architecture, as Debian writes it."""
        return self.wanted.arch

    def more_modules(self, names: list[str]) -> list[pathlib.Path]:
        """Those of the named modules, and what they need, that it has and guests do not load."""
        found = load_order(sorted(self.tree.glob("**/*.ko*")), names)
        known = {module_name(module) for module in self.modules}
        return [module for module in found if module_name(module) not in known]


def mirrors() -> tuple[str, str]:
    """The addresses of Debian's archive and of its security updates."""
    main = os.environ.get("DEBIAN_MIRROR", "").rstrip("/")
    if main:
        return main, os.environ.get("DEBIAN_SECURITY_MIRROR", f"{main}-security")
    found = {}
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(REPO_URI)"]
    if shutil.which("apt-get"):
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            origin, codename, address = line.split("|", 2)
            if origin == "Debian":
                kind = "security" if codename.endswith("-security") else "main"
                found.setdefault(kind, address.rstrip("/"))
    if "main" not in found:
        raise FetchError("this machine's apt has no mirror of Debian; name one: DEBIAN_MIRROR=URL")
    main = found["main"]
    return main, found.get("security", f"{main}-security")


class Apt:
    """apt for one suite and architecture, with all its files below one directory."""

    def __init__(self, suite: str, arch: str, root: pathlib.Path):
        self.suite, self.arch, self.root = suite, arch, root.resolve()

    def run(self, *command: str) -> str:
        """Runs a command of apt in the directory of packages and returns its output."""
        if not shutil.which(command[0]):
            raise FetchError(f"{command[0]} is missing: kernels are fetched with Debian's apt")
        result = subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, check=False,
            env={**os.environ, "APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C"})
        if result.returncode != 0:
            fix = {"apt-get update": "Set DEBIAN_MIRROR to a mirror of Debian that has this suite; "
                   "kernels of others, such as Ubuntu's, are given as files: SUITE:IMAGE.deb,"
                   "MODULES.deb",
                   "apt-cache show": f"{self.suite} has no such package."}
            raise FetchError(f"{' '.join(command)} failed for {self.suite}:\n{result.stderr}"
                             f"{fix.get(' '.join(command[:2]), '')}")
        return result.stdout

    def update(self) -> None:
        """Fetches the suite's lists of packages."""
        for directory in ("lists/partial", "cache/archives/partial"):
            (self.root / directory).mkdir(parents=True, exist_ok=True)
        main, security = mirrors()
        signed = f" [signed-by={KEYRING}]" if os.path.exists(KEYRING) else ""
        # Backports need their suite, and have no security updates of their own.
        suite = self.suite.removesuffix("-backports")
        sources = [f"deb{signed} {main} {name} main" for name in dict.fromkeys([suite, self.suite])]
        if suite not in ("sid", "unstable", "experimental"):
            sources.append(f"deb{signed} {security} {suite}-security main")
        (self.root / "sources.list").write_text("\n".join(sources) + "\n")
        prefer = f'APT::Default-Release "{self.suite}";\n' if self.suite != suite else ""
        # The lists of a suite that gets no more updates are past their date.
        (self.root / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{self.root}/sources.list";\n'
            'Dir::Etc::sourceparts "/dev/null";\n'
            f'Dir::State::lists "{self.root}/lists";\n'
            f'Dir::Cache "{self.root}/cache";\n'
            'Dir::State::status "/dev/null";\n'
            f'APT::Architecture "{self.arch}";\n'
            f'APT::Architectures "{self.arch}";\n'
            f'{prefer}'
            'APT::Sandbox::User "root";\n'
            'APT::Install-Recommends "false";\n'
            'Acquire::Languages "none";\n'
            'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n'
            'Acquire::Check-Valid-Until "false";\n')
        self.run("apt-get", "update")

    def record(self, package: str) -> dict[str, str]:
        """The fields of the newest version of a package."""
        text = self.run("apt-cache", "show", "--no-all-versions", package)
        return dict(re.findall(r"^([A-Za-z-]+): (.*)$", text, re.MULTILINE))

    def download(self, packages: list[str]) -> pathlib.Path:
        """Fetches packages and unpacks them over each other. Returns the directory."""
        names = [name for name in packages if not name.endswith(".deb")]
        if names:
            self.run("apt-get", "download", *names)
        return self.unpack([*self.root.glob("*.deb"),
                            *(pathlib.Path(name) for name in packages if name.endswith(".deb"))])

    def download_with_dependencies(self, packages: list[str]) -> pathlib.Path:
        """Fetches packages with all that they depend on. Returns the directory."""
        self.run("apt-get", "install", "--yes", "--download-only", *packages)
        return self.unpack([*self.root.glob("cache/archives/*.deb")])

    def unpack(self, files: list[pathlib.Path]) -> pathlib.Path:
        """Unpacks packages over each other. Returns the directory."""
        tree = self.root / "tree"
        for file in sorted(files):
            subprocess.run(["dpkg-deb", "-x", file, tree], check=True)
            if file.is_relative_to(self.root):
                file.unlink()
        return tree


def kernel_packages(apt: Apt, package: str) -> list[str]:
    """The packages with the image and the modules: what the metapackage depends on."""
    names, waiting = [], [package]
    while waiting:
        name = waiting.pop()
        depends = apt.record(name).get("Depends", "")
        # A metapackage has no files, and is named for no version.
        if name != package or re.search(r"-[0-9]+[.]", name):
            names.append(name)
        for dependency in re.findall(r"(linux-(?:image|binary|modules)-[^ ,]+)", depends):
            if dependency not in names + waiting:
                waiting.append(dependency)
    return names


def module_name(file: pathlib.Path) -> str:
    """The name of the module in a file, as the kernel writes it."""
    return file.name.split(".ko")[0].replace("-", "_")


def module_bytes(file: pathlib.Path) -> bytes:
    """A module, decompressed."""
    data = file.read_bytes()
    match file.suffix:
        case ".xz":
            return lzma.decompress(data)
        case ".zst":
            # (Python has it from 3.14 on.)
            return subprocess.run(["zstd", "-dc"], input=data, capture_output=True,
                                  check=True).stdout
    return data


def dependencies(data: bytes) -> list[str]:
    """The modules that a module says it needs."""
    found = re.search(rb"(?:^|\0)depends=([^\0]*)\0", data)
    return [name.replace("-", "_") for name in found[1].decode().split(",") if name] \
        if found else []


def load_order(files: list[pathlib.Path], wanted: list[str]) -> list[pathlib.Path]:
    """The wanted modules that exist and what they need, each after what it needs."""
    known = {module_name(file): file for file in files}
    order: list[pathlib.Path] = []

    def add(name: str) -> None:
        file = known.get(name)
        if file is None or file in order:
            return
        for needed in dependencies(module_bytes(file)):
            add(needed)
        order.append(file)

    for name in wanted:
        add(name)
    return order


def fetch(wanted: Wanted, cache: pathlib.Path, refresh: bool = False) -> Kernel:
    """A kernel: from the cache, unless there is none or it is to be renewed."""
    root = cache / "packages" / wanted.name
    facts = root / "kernel.json"
    known = json.loads(facts.read_text()) if facts.exists() else {}
    # Files may have changed, or be others than those of the same name before.
    source = [[file, os.stat(file).st_size, os.stat(file).st_mtime_ns] for file in wanted.files]
    if refresh or not known or known.get("source", []) != source:
        package = wanted.package or f"linux-image-cloud-{wanted.arch}"
        if wanted.files:
            needed = wanted.files
            version = [deb_version(pathlib.Path(file), wanted.arch) for file in needed][0]
            apt = fresh(wanted.suite, wanted.arch, root)
        else:
            apt = fresh(wanted.suite, wanted.arch, root)
            apt.update()
            version = apt.record(package)["Version"]
            needed = kernel_packages(apt, package)
        tree = apt.download(needed)
        clean(root)
        images = [*tree.glob("boot/vmlinu*"), *tree.glob("usr/lib/modules/*/vmlinu*")]
        if len(images) != 1:
            raise FetchError(f"{package} {version} has {len(images)} images, not one")
        modules = load_order(sorted(tree.glob("**/*.ko*")), MODULES)
        check_modules(tree, images[0], modules)
        facts.write_text(json.dumps({
            "version": version,
            "source": source,
            "image": str(images[0].relative_to(root.resolve())),
            "modules": [str(module.relative_to(root.resolve())) for module in modules],
        }))
        known = json.loads(facts.read_text())
    return Kernel(wanted, known["version"], root / known["image"],
                  [root / module for module in known["modules"]], root / "tree")


def fetch_tools(wanted: Wanted, cache: pathlib.Path) -> pathlib.Path:
    """A directory with the tools for a guest of another architecture, and their libraries."""
    root = cache / "packages" / f"tools-{wanted.suite}-{wanted.arch}"
    done = root / "done"
    if not done.exists():
        apt = fresh(wanted.suite, wanted.arch, root)
        apt.update()
        apt.download_with_dependencies(TOOLS)
        clean(root)
        done.touch()
    return root / "tree"


def fresh(suite: str, arch: str, root: pathlib.Path) -> Apt:
    """apt in an empty directory."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return Apt(suite, arch, root)


def clean(root: pathlib.Path) -> None:
    """Removes what apt needed."""
    for directory in ("lists", "cache"):
        shutil.rmtree(root / directory, ignore_errors=True)


def deb_version(file: pathlib.Path, arch: str) -> str:
    """The version of the package in a file, which must be of this architecture."""
    result = subprocess.run(["dpkg-deb", "-W", "--showformat", "${Version} ${Architecture}", file],
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise FetchError(f"{file} is no Debian package: {result.stderr.strip()}")
    version, its = result.stdout.split()
    if its not in (arch, "all"):
        raise FetchError(f"{file} is for {its}, not for {arch}: use SUITE-{its}")
    return version


def check_modules(tree: pathlib.Path, image: pathlib.Path, modules: list[pathlib.Path]) -> None:
    """Fails unless the modules are those of the image, and all that guests need is there."""
    kernel = image.name.partition("-")[2] or image.parent.name
    fix = f"add the package of its modules, such as linux-modules-{kernel}, joined by a comma"
    others = {parts[parts.index("modules") + 1]
              for parts in (module.relative_to(tree).parts for module in modules)} - {kernel}
    if others:
        raise FetchError(f"the image is {kernel}, the modules are {' '.join(sorted(others))}: "
                         f"{fix}")
    listed = [*tree.glob(f"**/modules/{kernel}/modules.builtin")]
    there = {module_name(module) for module in modules}
    for file in listed:
        there |= {module_name(pathlib.Path(line)) for line in file.read_text().split()}
    # (Some packages have no such list, in which case the modules must do.)
    missing = [name for name in NEEDED if name not in there] if listed or not modules else []
    if missing:
        raise FetchError(f"no {' '.join(missing)} for the image of {kernel}: {fix}")
