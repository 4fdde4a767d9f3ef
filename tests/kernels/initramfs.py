"""Initramfs images for the guests, written in the kernel's newc format, and their first program."""

import os
import pathlib
import re
import shutil
import stat
import subprocess

import packages

# Programs of the machine that guests run too, if they are there. The first ones are required.
REQUIRED = ["busybox", "mkfs.ext4"]
TOOLS = ["mkfs.xfs", "losetup", "setpriv", "unshare", "fsfreeze", "mount", "umount", "dmsetup",
         "prlimit", "taskset", "blockdev"]
# Where the programs of another architecture seek libraries.
LIBRARIES = {"arm64": "/lib/aarch64-linux-gnu", "amd64": "/lib/x86_64-linux-gnu"}
HOST = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)

PASSWD = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n" \
    "nobody:x:65534:65534:nobody:/:/bin/sh\n"
GROUP = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"

# Prepares the guest, and runs the commands in /commands one after the other. What they print goes
# to the channel between two lines that start with the boot's own word.
INIT = r"""#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /tmp /run /disk /virtio
mount -t devpts pts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
# (Not mounted: the programs are below it, if this repository is.)
chmod 1777 /tmp
ln -sf /proc/self/fd /dev/fd
ip link set lo up
for word in $(cat /proc/cmdline); do
    case $word in ringway.*=*) eval "${word%%=*}"= 2>/dev/null
        case $word in
            ringway.channel=*) channel=/dev/${word#*=} ;;
            ringway.mark=*) mark=${word#*=} ;;
        esac ;;
    esac
done
for module in /modules/*; do
    test ! -e "$module" || insmod "$module" $(cat "/parameters/${module##*/}" 2>/dev/null) ||
        echo "cannot load $module"
done
# The kernel measures the frequency of the processor's counter at boot. If the machine is so busy
# that the emulated processor waits meanwhile, the kernel's clock runs many times too fast, and
# programs exceed their time limits at once. The real-time clock is the machine's.
clocks=/sys/devices/system/clocksource/clocksource0
rtc=/sys/class/rtc/rtc0/since_epoch
second() {
    was=$(cat $rtc)
    while test "$(cat $rtc)" = "$was"; do :; done
}
hundredths() {
    awk '{ print int($1 * 100) }' /proc/uptime
}
if test -e $rtc && test "$(cat $clocks/current_clocksource)" = tsc; then
    second
    began=$(hundredths)
    second
    second
    took=$(($(hundredths) - began))
    if test $took -lt 100 || test $took -gt 400; then
        echo "two seconds take $took hundredths of one: the clock is acpi_pm"
        echo acpi_pm >$clocks/current_clocksource
    fi
fi
stty raw -echo <"$channel"
exec 3>"$channel"
echo "@$mark boot $(uname -r)" >&3
# Namespaces are found in parallel: neither their order nor the end of the search is certain.
for try in $(seq 50); do
    for namespace in /sys/block/nvme*n*; do
        disk=${namespace##*/}
        test ! -b "/dev/$disk" || ln -sfn "/dev/$disk" "/dev/namespace$(cat "$namespace/nsid")"
    done
    test ! -e /dev/namespace3 || break
    sleep 0.2
done
mkfs.ext4 -q -F /dev/namespace1 && mount /dev/namespace1 /disk && chmod 1777 /disk ||
    echo "no NVMe disk"
test ! -e /dev/vda || { mkfs.ext4 -q -F /dev/vda && mount /dev/vda /virtio && chmod 1777 /virtio; }
export TMPDIR=/disk
# As on most machines; the kernel's own limit is 1024.
ulimit -n 65536
# As on most machines; kernels before 5.16 lend an ordinary user 64 KiB.
ulimit -l 8192
mkfifo /run/output
for command in /commands/*; do
    name=${command#/commands/}
    echo "@$mark begin $name" >&3
    cat /run/output >&3 &
    copy=$!
    # A command before may have been stopped in the middle.
    test ! -e /proc/sys/kernel/io_uring_disabled || echo 0 >/proc/sys/kernel/io_uring_disabled
    echo 65536 >/proc/sys/fs/aio-max-nr
    cd /disk
    # (In a process without children, whose end would interrupt the opening of the pipe.)
    (exec "$command" >/run/output 2>&1 3>&- </dev/null)
    status=$?
    # Something that was left running may hold the pipe open.
    (sleep 10; kill $copy) 2>/dev/null 3>&- &
    watch=$!
    wait $copy 2>/dev/null
    kill $watch 2>/dev/null
    echo >&3
    echo "@$mark end $name $status" >&3
done
echo "@$mark done" >&3
sync
reboot -f
"""


class Archive:
    """Files of an initramfs."""

    def __init__(self, arch: str, tree: pathlib.Path | None = None):
        """An archive for an architecture. If it is not this machine's, libraries are in a tree."""
        self.arch, self.tree = arch, tree
        self.entries: dict[str, tuple[int, bytes]] = {}

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Adds a directory, and those above it."""
        above = os.path.dirname(path)
        if above != "/":
            self.directory(above)
        self.entries.setdefault(path, (stat.S_IFDIR | mode, b""))

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Adds a file."""
        self.directory(os.path.dirname(path))
        self.entries[path] = (stat.S_IFREG | mode, data)

    def link(self, path: str, to: str) -> None:
        """Adds a symbolic link."""
        self.directory(os.path.dirname(path))
        self.entries[path] = (stat.S_IFLNK | 0o777, to.encode())

    def add(self, source: pathlib.Path, path: str) -> None:
        """Adds a file, a directory, or a program with the libraries that it needs."""
        if source.is_dir():
            self.directory(path)
            for entry in sorted(source.iterdir()):
                if entry.name not in (".git", "target"):
                    self.add(entry, f"{path}/{entry.name}")
            return
        data = source.read_bytes()
        self.file(path, data, stat.S_IMODE(source.stat().st_mode))
        if data[:4] == b"\x7fELF":
            if self.tree is None:
                self.libraries({library: pathlib.Path(library) for library in libraries(source)})
            else:
                self.libraries(foreign_libraries(source, self.arch, self.tree))

    def libraries(self, found: dict[str, pathlib.Path]) -> None:
        """Adds libraries, and those that they need, unless they are here."""
        for path, source in found.items():
            if path not in self.entries:
                self.add(source, path)

    def add_all(self, sources: set[pathlib.Path]) -> None:
        """Adds files and directories at the paths that they have here."""
        for source in sorted(sources):
            self.add(source, str(source))

    def write(self, path: pathlib.Path) -> None:
        """Writes the archive."""
        with open(path, "wb") as out:
            for number, (name, (mode, data)) in enumerate(self.entries.items(), 1):
                out.write(header(number, name[1:], mode, len(data)))
                out.write(data + bytes(-len(data) % 4))
            out.write(header(0, "TRAILER!!!", 0, 0))


def header(number: int, name: str, mode: int, length: int) -> bytes:
    """The header of an entry in the newc format, with its name, padded to four bytes."""
    encoded = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, len(encoded), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return head + bytes(-len(head) % 4)


def libraries(program: pathlib.Path) -> list[str]:
    """The paths of the shared libraries and of the interpreter of a program of this machine."""
    result = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", result.stdout, re.MULTILINE)


def foreign_libraries(program: pathlib.Path, arch: str,
                      tree: pathlib.Path) -> dict[str, pathlib.Path]:
    """The same for a program of another architecture: each path, and the file in the tree."""
    result = subprocess.run(["readelf", "-dl", program], capture_output=True, text=True,
                            check=True)
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", result.stdout)
    paths = [f"{LIBRARIES[arch]}/{name}" for name in names]
    paths += re.findall(r"interpreter: (/[^\]]*)\]", result.stdout)
    found = {}
    for path in paths:
        # Suites before trixie have the libraries outside /usr.
        for place in (tree / "usr", tree):
            if (place / path[1:]).is_file():
                found[path] = place / path[1:]
    return found


def find_tool(name: str) -> pathlib.Path | None:
    """A program of this machine, also of the administrator's."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    return pathlib.Path(path) if path else None


def base(kernel: packages.Kernel, tools: pathlib.Path | None = None) -> Archive:
    """What each guest of a kernel has: busybox, tools, users, modules and the first program.

    A guest of another architecture has the tools in a directory with unpacked Debian packages.
    """
    archive = Archive(kernel.arch, tools)
    for directory in ("/proc", "/sys", "/dev", "/tmp", "/root", "/commands", "/modules"):
        archive.directory(directory)
    archive.link("/bin/sh", "busybox")
    for name in REQUIRED + TOOLS:
        found = find_tool(name) if tools is None else unpacked_tool(tools, name)
        if found is not None:
            archive.add(found.resolve(), f"/usr/sbin/{name}" if name != "busybox"
                        else "/bin/busybox")
        elif name in REQUIRED:
            raise packages.FetchError(f"{name} is missing: install busybox-static, e2fsprogs")
    archive.file("/init", INIT.encode(), 0o755)
    archive.file("/etc/passwd", PASSWD.encode())
    archive.file("/etc/group", GROUP.encode())
    archive.file("/etc/hosts", b"127.0.0.1 localhost\n")
    archive.file("/etc/mke2fs.conf", pathlib.Path("/etc/mke2fs.conf").read_bytes())
    add_modules(archive, kernel.modules)
    return archive


def add_modules(archive: Archive, modules: list[pathlib.Path], first: int = 0) -> None:
    """Adds modules that the first program loads in this order, after `first` others."""
    for number, module in enumerate(modules, first):
        name = f"{number:03}-{packages.module_name(module)}"
        archive.file(f"/modules/{name}", packages.module_bytes(module))
        parameters = packages.PARAMETERS.get(packages.module_name(module))
        if parameters:
            archive.file(f"/parameters/{name}", parameters.encode())


def unpacked_tool(tree: pathlib.Path, name: str) -> pathlib.Path | None:
    """A program in a directory with unpacked packages."""
    places = [tree / place / name for place in ("usr/sbin", "usr/bin", "sbin", "bin")]
    return next((place for place in places if place.is_file()), None)
