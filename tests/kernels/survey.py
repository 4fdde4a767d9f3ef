"""The survey of file systems in a guest: its tools and modules, and how what it observes is
recorded here, as a guest's disk is lost.
"""

import os
import pathlib
import re
import shlex
import subprocess
import threading

import guest

# Programs of this machine. A row whose program is missing is skipped with that reason.
TOOLS = ["btrfs", "mkfs.btrfs", "mkfs.f2fs", "mksquashfs", "mkfs.erofs", "filefrag",
         "integritysetup", "mdadm", "exportfs", "rpc.mountd", "rpc.nfsd"]
# Modules that the rows need, and algorithms that modules ask for when they are used.
MODULES = ["btrfs", "crc32_generic", "f2fs", "overlay", "squashfs", "erofs", "zram", "fuse", "ecb",
           "xts", "aes_generic", "crc32c_cryptoapi", "dm_crypt", "dm_integrity", "raid1", "nfsd",
           "nfsv4", "9p", "9pnet_virtio", "virtiofs"]
FILES = ["crates/ringway-survey", "crates/ringway-cli/src/probe/file_systems.json",
         "docs/file-systems.md"]
# What the RPC programs read.
NETCONFIG = pathlib.Path("/etc/netconfig")
# An emulated machine takes minutes for each round of a recording.
ROUNDS = "2"
# Guests may end at the same time.
RECORDING = threading.Lock()


def files() -> list[pathlib.Path]:
    """What the survey needs in a guest, beside its own programs."""
    tools = [guest.initramfs.find_tool(name) for name in TOOLS]
    return [*(guest.ROOT / file for file in FILES), *(tool for tool in tools if tool),
            *([NETCONFIG] if NETCONFIG.exists() else [])]


def environment(server: pathlib.Path, recording: bool) -> str:
    """A line for the guest's shell."""
    words = ["RINGWAY_GUEST=1", f"RINGWAY_HOSTILE_FS={server}"]
    if recording:
        rounds = os.environ.get("RINGWAY_ROUNDS", ROUNDS)
        words += ["RINGWAY_RECORD=print", f"RINGWAY_ROUNDS={rounds}"]
    place = os.environ.get("RINGWAY_PLACE")
    if place:
        words.append(f"RINGWAY_PLACE={shlex.quote(place)}")
    # (exportfs reads it first. And hugetlbfs has what is reserved.)
    return f"touch /etc/exports; echo 4 >/proc/sys/vm/nr_hugepages; export {' '.join(words)}"


def observed(output: str) -> str | None:
    """The rows that a guest printed last."""
    found = re.findall(r"^observed: (.*)$", output, re.MULTILINE)
    return found[-1] if found else None


def record(program: pathlib.Path, output: str, path: pathlib.Path) -> None:
    """Has the test program record the rows that it printed in a guest, and write the page."""
    path.write_text(observed(output) or "")
    with RECORDING:
        subprocess.run([program, "--quiet", "they_do"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "RINGWAY_RECORD_FROM": str(path)})
