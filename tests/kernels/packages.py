"""Debian's kernels: fetches the newest cloud kernel of a suite with apt and unpacks it.

apt runs with package lists and a cache of its own below target/kernels, so neither the machine's
list of sources nor its installed packages matter. The mirror is DEBIAN_MIRROR, or else the one the
machine's apt uses for Debian, or else deb.debian.org.
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
DEFAULT_MIRROR = "http://deb.debian.org/debian"
# Modules that guests load where the kernel has them and has not built them in.
MODULES = ["virtio_pci", "virtio_blk", "loop", "xfs", "dm_mod"]


class FetchError(Exception):
    """A package could not be fetched; the text says which, and what to do."""


@dataclasses.dataclass
class Kernel:
    """A kernel that was unpacked: its image and the modules to load, in that order."""

    suite: str
    arch: str
    version: str
    image: pathlib.Path
    modules: list[pathlib.Path]


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
    main = found.get("main", DEFAULT_MIRROR)
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
            raise FetchError(f"{' '.join(command)} failed for {self.suite}:\n{result.stderr}"
                             "Set DEBIAN_MIRROR to a mirror that has this suite.")
        return result.stdout

    def update(self) -> None:
        """Fetches the suite's lists of packages."""
        for directory in ("lists/partial", "cache/archives/partial"):
            (self.root / directory).mkdir(parents=True, exist_ok=True)
        main, security = mirrors()
        signed = f" [signed-by={KEYRING}]" if os.path.exists(KEYRING) else ""
        sources = [f"deb{signed} {main} {self.suite} main"]
        if self.suite != "sid":
            sources.append(f"deb{signed} {security} {self.suite}-security main")
        (self.root / "sources.list").write_text("\n".join(sources) + "\n")
        # The lists of a suite that gets no more updates are past their date.
        (self.root / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{self.root}/sources.list";\n'
            'Dir::Etc::sourceparts "/dev/null";\n'
            f'Dir::State::lists "{self.root}/lists";\n'
            f'Dir::Cache "{self.root}/cache";\n'
            'Dir::State::status "/dev/null";\n'
            f'APT::Architecture "{self.arch}";\n'
            f'APT::Architectures "{self.arch}";\n'
            'APT::Sandbox::User "root";\n'
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
        tree = self.root / "tree"
        self.run("apt-get", "download", *packages)
        for package in sorted(self.root.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
            package.unlink()
        return tree


def kernel_packages(apt: Apt, package: str) -> list[str]:
    """The packages with the image and the modules: what the metapackage depends on."""
    names, waiting = [], [package]
    while waiting:
        name = waiting.pop()
        depends = apt.record(name).get("Depends", "")
        if name != package:
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
    return lzma.decompress(data) if file.suffix == ".xz" else data


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


def fetch(suite: str, arch: str, cache: pathlib.Path, refresh: bool = False) -> Kernel:
    """The newest kernel of a suite: from the cache, unless there is none or it is to be renewed."""
    root = cache / "packages" / f"{suite}-{arch}"
    facts = root / "kernel.json"
    if refresh or not facts.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        apt = Apt(suite, arch, root)
        apt.update()
        package = f"linux-image-cloud-{arch}"
        version = apt.record(package)["Version"]
        tree = apt.download(kernel_packages(apt, package))
        shutil.rmtree(root / "lists")
        shutil.rmtree(root / "cache")
        images = [*tree.glob("boot/vmlinu*"), *tree.glob("usr/lib/modules/*/vmlinu*")]
        if len(images) != 1:
            raise FetchError(f"{package} {version} has {len(images)} images, not one")
        modules = load_order(sorted(tree.glob("**/*.ko*")), MODULES)
        facts.write_text(json.dumps({
            "version": version,
            "image": str(images[0].relative_to(root.resolve())),
            "modules": [str(module.relative_to(root.resolve())) for module in modules],
        }))
    known = json.loads(facts.read_text())
    return Kernel(suite, arch, known["version"], root / known["image"],
                  [root / module for module in known["modules"]])
