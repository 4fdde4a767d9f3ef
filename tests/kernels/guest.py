#!/usr/bin/env python3
"""Runs commands on a Debian kernel in QEMU, and tells what they printed and how they ended.

    tests/kernels/guest.py bullseye --add target/release/ringway -- ringway probe

The guest is an initramfs with busybox, tools for file systems and the files that are added. It has
an NVMe disk with polled queues: /dev/namespace1 holds an ext4 file system at /disk, which is
TMPDIR; /dev/namespace2 and 3 are empty, with blocks of 512 and 4096 bytes. A virtio disk is at
/virtio.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import pathlib
import queue
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import initramfs
import packages

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "kernels"
QEMU = {"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}
GIB = 1 << 30
# The memory of a guest, in MiB.
MEMORY = 6144
# The server of virtiofs, and the one that QEMU had up to 7.2.
VIRTIOFSD = ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"]
VIRTIOFSD_STATE = pathlib.Path("/run/virtiofsd")
# The guests of this process, and whether they were stopped.
RUNNING: set[subprocess.Popen] = set()
STOPPED = threading.Event()


def stop() -> None:
    """Ends all guests: their iteration ends, without the command that ran. None starts later."""
    STOPPED.set()
    for process in list(RUNNING):
        process.kill()


@dataclasses.dataclass
class Command:
    """A command of a guest: its name in results, and a line for its shell."""

    name: str
    line: str
    seconds: int = 600


@dataclasses.dataclass
class Ended:
    """How a command ended. Its status is None if the guest died before."""

    name: str
    status: int | None
    output: str
    seconds: float


class Parser:
    """Reads a guest's channel: what is between the lines that only the first program knows."""

    def __init__(self, mark: str):
        self.mark = f"@{mark} "
        self.release = ""
        self.finished = False
        self.name: str | None = None
        self.lines: list[str] = []
        self.began = 0.0

    def line(self, text: str, now: float) -> Ended | None:
        """Takes a line. Returns the command that it ends, if it ends one."""
        if not text.startswith(self.mark):
            if self.name is not None:
                self.lines.append(text)
            return None
        word, *rest = text[len(self.mark):].split()
        match word:
            case "boot":
                self.release = rest[0]
            case "begin":
                self.name, self.lines, self.began = rest[0], [], now
            case "end":
                name, self.name = self.name, None
                if name == rest[0]:
                    return Ended(name, int(rest[1]), self.output(), now - self.began)
            case "done":
                self.finished = True
        return None

    def output(self) -> str:
        """What the current command has printed."""
        return "\n".join(self.lines).strip("\n")

    def died(self, now: float) -> Ended | None:
        """The command that was running when the channel ended."""
        if self.name is None:
            return None
        return Ended(self.name, None, self.output(), now - self.began)


@functools.cache
def kvm_works(program: str, image: pathlib.Path) -> bool:
    """Whether a kernel boots with KVM here, up to its panic without a first program. A device alone
    does not mean that, nor does a machine that can be made: a nested one may never get further."""
    machine = ["-M", "virt"] if program == QEMU["arm64"] else []
    console = "ttyAMA0" if machine else "ttyS0"
    try:
        booted = subprocess.run(
            [program, *machine, "-accel", "kvm", "-cpu", "host", "-m", "512M", "-nodefaults",
             "-no-reboot", "-display", "none", "-serial", "stdio", "-kernel", str(image),
             "-append", f"panic=-1 console={console}"],
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=20)
        return b"Kernel panic" in booted.stdout
    except (OSError, subprocess.TimeoutExpired):
        return False


def accelerator(arch: str, image: pathlib.Path) -> list[str]:
    """QEMU's options for the processor: KVM where it works, else emulation in several threads."""
    wanted = os.environ.get("ACCEL")
    if arch == initramfs.HOST and (wanted == "kvm" or not wanted and kvm_works(QEMU[arch], image)):
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


class ServerError(Exception):
    """A server for a guest did not start; the text has its messages."""


def virtiofsd() -> str | None:
    """The path of this machine's server of virtiofs, if it works for this user."""
    if os.geteuid() != 0:
        return None
    return next((path for path in VIRTIOFSD if os.access(path, os.X_OK)), None)


@contextlib.contextmanager
def virtiofs(scratch: pathlib.Path, memory: int) -> Iterator[list[str]]:
    """Serves a directory, and yields QEMU's options for it: none if this machine has no server, or
    no user whom it works for. A server that does not start is an error."""
    server = virtiofsd()
    if server is None:
        yield []
        return
    (scratch / "virtiofs").mkdir()
    # (The path of a socket has to be short.)
    with tempfile.TemporaryDirectory(prefix="ringway-") as directory:
        socket = pathlib.Path(directory) / "socket"
        with open(scratch / "virtiofsd", "wb") as log, subprocess.Popen(
                [server, f"--socket-path={socket}", "-o", f"source={scratch}/virtiofs", "-o",
                 "sandbox=chroot"], stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            try:
                deadline = time.monotonic() + 10
                while not socket.exists() and process.poll() is None and \
                        time.monotonic() < deadline:
                    time.sleep(0.01)
                if not socket.exists():
                    process.kill()
                    process.wait()
                    messages = (scratch / "virtiofsd").read_text(errors="replace")
                    raise ServerError(f"{server} does not start: {messages.strip()}")
                # It needs the guest's memory.
                yield ["-object", f"memory-backend-memfd,id=memory,size={memory}M,share=on",
                       "-numa", "node,memdev=memory",
                       "-chardev", f"socket,id=virtiofs,path={socket}",
                       "-device", "vhost-user-fs-pci,chardev=virtiofs,tag=ringway-virtiofs"]
            finally:
                process.kill()
                # (QEMU's leaves this file, whose name has the socket's path.)
                name = str(socket).replace("/", ".")
                (VIRTIOFSD_STATE / f"{name}.pid").unlink(missing_ok=True)


def qemu(kernel: packages.Kernel, archive: pathlib.Path, scratch: pathlib.Path, mark: str,
         memory: int, append: str) -> list[str]:
    """The command that starts a guest."""
    console, channel = ("ttyS0", "ttyS1") if kernel.arch == "amd64" else ("ttyAMA0", "ttyS0")
    # On a busy machine an emulated timer may be late when the kernel checks it, and panics; and the
    # kernel would read the time from an emulated timer, which is slow, as the processors' counters
    # differ in its test.
    words = (f"console={console} rdinit=/init panic=-1 nvme.poll_queues=1 cryptomgr.notests=1 "
             f"no_timer_check tsc=reliable mitigations=off quiet loglevel=4 "
             f"ringway.channel={channel} ringway.mark={mark} {append}")
    command = [QEMU[kernel.arch], *accelerator(kernel.arch, kernel.image), "-m", f"{memory}M",
               "-smp", "2", "-nodefaults", "-no-reboot", "-display", "none",
               "-kernel", str(kernel.image), "-initrd", str(archive), "-append", words,
               "-serial", f"file:{scratch}/console", "-chardev", "stdio,id=channel,signal=off",
               "-device", "nvme,id=nvme,serial=ringway"]
    command += ["-serial", "chardev:channel"] if kernel.arch == "amd64" else \
        ["-M", "virt", "-device", "pci-serial,chardev=channel"]
    for number, (size, block) in enumerate([(8 * GIB, 512), (GIB, 512), (GIB, 4096)], 1):
        disk(scratch / f"nvme{number}", size)
        command += ["-drive", f"if=none,id=nvme{number},file={scratch}/nvme{number},format=raw,"
                    "cache=unsafe,discard=unmap",
                    "-device", f"nvme-ns,bus=nvme,drive=nvme{number},nsid={number},"
                    f"logical_block_size={block},physical_block_size={block}"]
    # For 9p.
    (scratch / "shared").mkdir()
    command += ["-virtfs", f"local,path={scratch}/shared,mount_tag=ringway,security_model=none"]
    disk(scratch / "virtio", 4 * GIB)
    return command + ["-drive", f"if=none,id=virtio,file={scratch}/virtio,format=raw,cache=unsafe,"
                      "discard=unmap", "-device", "virtio-blk-pci,drive=virtio"]


def base(kernel: packages.Kernel) -> initramfs.Archive:
    """The initramfs of a kernel, before anything is added. Fetches tools if it needs others."""
    native = kernel.arch == initramfs.HOST
    return initramfs.base(kernel, None if native else packages.fetch_tools(kernel.wanted, CACHE))


def disk(path: pathlib.Path, size: int) -> None:
    """Makes the image of an empty disk, which takes no space."""
    with open(path, "wb") as image:
        image.truncate(size)


class Guest:
    """A running guest. Iterating yields its commands as they end."""

    def __init__(self, kernel: packages.Kernel, archive: initramfs.Archive,
                 commands: list[Command], *, memory: int = MEMORY, append: str = "",
                 environment: dict[str, str] | None = None, shares: bool = False):
        """`shares`: a directory of this machine is shared by virtiofs."""
        self.kernel, self.archive, self.commands = kernel, archive, commands
        self.memory, self.append, self.shares = memory, append, shares
        self.environment = environment or {}
        self.parser = Parser(secrets.token_hex(8))
        self.console = ""

    def prepare(self) -> None:
        """Adds the commands to the initramfs."""
        exports = "".join(f"export {name}={shlex.quote(value)}\n"
                          for name, value in self.environment.items())
        for number, command in enumerate(self.commands):
            self.archive.file(f"/lines/{number:03}", f"{exports}{command.line}\n".encode())
            self.archive.file(f"/commands/{number:03}", (
                "#!/bin/sh\n"
                f"exec timeout -k 5 {command.seconds} sh /lines/{number:03}\n").encode(), 0o755)

    def run(self, boot_seconds: int = 600) -> Iterator[Ended]:
        """Boots, and yields each command when it ends. A command that is not yielded never ran."""
        self.prepare()
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="guest-") as directory:
            scratch = pathlib.Path(directory)
            self.archive.write(scratch / "initramfs")
            command = qemu(self.kernel, scratch / "initramfs", scratch, self.parser.mark[1:-1],
                           self.memory, self.append)
            server = virtiofs(scratch, self.memory) if self.shares else \
                contextlib.nullcontext([])
            with server as shared, \
                    subprocess.Popen(command + shared, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                RUNNING.add(process)
                try:
                    if not STOPPED.is_set():
                        yield from self.read(process, boot_seconds)
                finally:
                    RUNNING.discard(process)
                    process.kill()
                    # (SIGKILL is ours, or the machine's for want of memory.)
                    status = f"\nQEMU ended with {process.wait()}\n"
                    errors = process.stderr.read().decode(errors="replace")
                    with contextlib.suppress(OSError):
                        self.console = (scratch / "console").read_text(errors="replace")
                    self.console += errors + status

    def read(self, process: subprocess.Popen, boot_seconds: int) -> Iterator[Ended]:
        """Follows the channel until the guest ends, or is silent longer than its command may."""
        lines: queue.Queue[str | None] = queue.Queue()

        def follow() -> None:
            for line in process.stdout:
                lines.put(line.decode(errors="replace").rstrip("\r\n"))
            lines.put(None)

        threading.Thread(target=follow, daemon=True).start()
        deadline = time.monotonic() + boot_seconds
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            now = time.monotonic()
            if line is None:
                ended = self.parser.died(now)
                if ended and not STOPPED.is_set():
                    yield self.named(ended)
                return
            ended = self.parser.line(line, now)
            if ended:
                yield self.named(ended)
            if line.startswith(self.parser.mark):
                running = self.parser.name
                deadline = now + (60 if running is None else
                                  self.commands[int(running)].seconds + 60)

    def named(self, ended: Ended) -> Ended:
        """The guest knows commands by number."""
        return dataclasses.replace(ended, name=self.commands[int(ended.name)].name)


def main() -> int:
    """Runs one command in a guest, and ends with its status; 125 if the guest did not end it."""
    parser = argparse.ArgumentParser(description=__doc__, epilog=packages.HELP,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", help="bullseye, bookworm, trixie, sid, or "
                        "SUITE[-ARCH][:PACKAGE]; PACKAGE is a kernel's package in the suite, "
                        "or the path of a .deb")
    parser.add_argument("--add", action="append", default=[], metavar="FILE[:PATH]",
                        help="a file or directory for the guest, in /bin if no PATH is given")
    parser.add_argument("--memory", type=int, default=MEMORY,
                        help=f"in MiB; without, {MEMORY}")
    parser.add_argument("--seconds", type=int, default=600,
                        help="the command's time limit; without, 600")
    parser.add_argument("--append", default="", help="more words for the kernel's command line")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="a variable of the command's environment")
    parser.add_argument("--console", action="store_true", help="show the kernel's messages too")
    parser.add_argument("--virtiofs", action="store_true", help="share a directory by virtiofs "
                        "(tag ringway-virtiofs), as root")
    parser.add_argument("command", nargs="+", help="a command, or one argument for the shell")
    options = parser.parse_args()
    # (The disks of a guest are removed then, too.)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kernel = packages.fetch(packages.Wanted.parse(options.kernel), CACHE)
    archive = base(kernel)
    for entry in options.add:
        source, _, path = entry.partition(":")
        archive.add(pathlib.Path(source), path or f"/bin/{pathlib.Path(source).name}")
    line = options.command[0] if len(options.command) == 1 else shlex.join(options.command)
    guest = Guest(kernel, archive, [Command("command", line, options.seconds)],
                  memory=options.memory, append=options.append, shares=options.virtiofs,
                  environment=dict(pair.split("=", 1) for pair in options.env))
    status = None
    for ended in guest.run():
        print(ended.output)
        status = ended.status
    if options.console or status is None:
        print(guest.console, file=sys.stderr)
    if status is None:
        print("guest.py: the guest died before the command ended", file=sys.stderr)
        return 125
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (packages.FetchError, ServerError) as error:
        sys.exit(f"guest.py: {error}")
