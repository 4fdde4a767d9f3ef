"""The survey of file systems in a guest: its tools and modules, and how what it observes is recorded
here, as a guest's disk is lost.
"""

import pathlib
import re
import subprocess

import guest

# Programs of this machine. A row whose program is missing is skipped with that reason.
TOOLS = ["mkfs.btrfs", "mkfs.f2fs", "mksquashfs", "mkfs.erofs", "filefrag", "integritysetup",
         "mdadm", "exportfs", "rpc.mountd", "rpc.nfsd"]
# Modules that the rows need, and algorithms that modules ask for when they are used.
MODULES = ["btrfs", "crc32_generic", "f2fs", "overlay", "squashfs", "erofs", "zram", "fuse", "ecb",
           "xts", "aes_generic", "dm_crypt", "dm_integrity", "raid1", "nfsd", "nfsv4"]
FILES = ["crates/ringway-survey", "crates/ringway-cli/src/probe/file_systems.json",
         "docs/file-systems.md"]
# What the RPC programs read.
NETCONFIG = pathlib.Path("/etc/netconfig")
# An emulated machine takes minutes for one.
ROUNDS = 2


def files() -> list[pathlib.Path]:
    """What the survey needs in a guest, beside its own programs."""
    tools = [guest.initramfs.find_tool(name) for name in TOOLS]
    return [*(guest.ROOT / file for file in FILES), *(tool for tool in tools if tool),
            *([NETCONFIG] if NETCONFIG.exists() else [])]


def environment(server: pathlib.Path, recording: bool) -> str:
    """A line for the guest's shell."""
    record = f"RINGWAY_RECORD=print RINGWAY_ROUNDS={ROUNDS}" if recording else ""
    return f"export RINGWAY_GUEST=1 RINGWAY_HOSTILE_FS={server} {record}"


def observed(output: str) -> str | None:
    """The rows that a guest printed last."""
    found = re.findall(r"^observed: (.*)$", output, re.MULTILINE)
    return found[-1] if found else None


def record(output: str, path: pathlib.Path) -> None:
    """Records the rows that a guest printed, and writes the page; `path` keeps them."""
    path.write_text(observed(output) or "")
    subprocess.run(["cargo", "test", "-q", "-p", "ringway-survey", "--test", "file_systems",
                    "they_do"], cwd=guest.ROOT, check=True,
                   env={**guest.os.environ, "RINGWAY_RECORD_FROM": str(path)})
