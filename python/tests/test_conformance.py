"""Runs the data in conformance/ through the package, as far as its functions can express a case.

A case that needs more is skipped with the reason: most of the data is about the queue itself
(chains, drains, slots, descriptors that are none), which Python programs never see.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

import ringway
from conftest import TIME_LIMIT
from ringway import _ringway
from ringway._engine import engine, run

DATA = Path(__file__).parent.parent.parent / "conformance"
# As many cases are expressible: a change of the runner or of the data must not skip them.
LEAST = 46


class Inexpressible(Exception):
    """Why a case cannot be run."""


def cases() -> list[Any]:
    found = []
    for path in sorted(DATA.glob("*.case")):
        name, steps = "", []
        for line in [*path.read_text().splitlines(), "case "]:
            line = line.strip()
            if line.startswith("case ") or line == "case":
                if name:
                    found.append(pytest.param(repeated(steps), id=f"{path.stem}: {name}"))
                name, steps = line[5:], []
            elif line and not line.startswith("#"):
                steps.append(line.split())
        assert name == ""
    return found


def repeated(steps: list[list[str]]) -> list[list[str]]:
    """The steps without repeats."""
    out: list[list[str]] = []
    rest = iter(steps)
    for step in rest:
        if step[0] != "repeat":
            out.append(step)
            continue
        body = []
        for inner in rest:
            if inner == ["again"]:
                break
            body.append(inner)
        for turn in range(number(step[1])):
            out += [[word.replace("$", str(turn)) for word in inner] for inner in body]
    return out


def number(text: str) -> int:
    total, operation = 0, "+"
    for token in re.findall(r"[-+*]|[^-+*]+", text):
        if token in "-+*":
            operation = token
            continue
        value = term(token)
        total = {"+": total + value, "-": total - value, "*": total * value}[operation]
    return total % 2**64


def term(text: str) -> int:
    if text == "max":
        return 2**63 - 1
    scale = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1], 0)
    digits = text[:-1] if scale else text
    if digits.startswith("0x"):
        return int(digits, 16) << scale
    return int(digits, 8 if digits.startswith("0") and digits != "0" else 10) << scale


def flags_of(text: str) -> int:
    total = 0
    for name in text.split("|"):
        if name[0].isdigit():
            total |= number(name)
        elif hasattr(os, name):
            total |= getattr(os, name)
        else:
            raise Inexpressible(f"flag {name}")
    return total


def content(text: str) -> bytes:
    out = b""
    if text == "none":
        return out
    for name, inside in re.findall(r"(\w+)\(([^)]*)\)", text):
        if name == "text":
            out += inside.encode()
        elif name == "hex":
            out += bytes.fromhex(inside)
        else:
            first, length = (number(part) for part in inside.split(","))
            if length > 64 << 20:
                raise Inexpressible("more content than a test should have")
            if name == "fill":
                out += bytes([first]) * length
            else:
                places = range(first, first + length)
                out += bytes((p ^ p >> 8 ^ p >> 16 ^ p >> 24) & 255 for p in places)
    return out


def path_of(text: str) -> str:
    if text == '""':
        return ""
    if match := re.fullmatch(r"long\((\d+)\)", text):
        return "n" * int(match[1])
    return text


class Case:
    """One case: its descriptors, operations in flight, and their buffers."""

    def __init__(self) -> None:
        self.fds: dict[str, int] = {}
        self.files: dict[str, Any] = {}
        self.buffers: dict[str, memoryview] = {}
        self.stats: dict[str, tuple[int, ...]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.checked: dict[str, str] = {}

    async def step(self, words: list[str]) -> None:
        kind = words[0]
        if kind in ("do", "push"):
            if "=>" not in words:
                raise Inexpressible("an operation without result")
            at = words.index("=>")
            name = words[1][:-1] if words[1].endswith(":") else f"#{len(self.tasks)}"
            operation = words[2 if words[1].endswith(":") else 1 : at]
            task = asyncio.ensure_future(self.operate(name, operation, words[at + 1]))
            self.tasks[name] = task
            if kind == "do":
                await task
        elif kind == "wait":
            names = list(self.tasks) if words[1] == "all" else words[1:]
            await asyncio.gather(*(self.tasks[name] for name in names))
        elif kind == "submit":
            await self.turn()
        elif method := getattr(self, f"step_{kind}", None):
            await method(*words[1:])
        else:
            raise Inexpressible(f"the step {kind}")

    # ---- System calls ----------------------------------------------------------------------------

    async def step_make(self, kind: str, path: str, *rest: str) -> None:
        if kind == "file":
            Path(path_of(path)).write_bytes(content(rest[0]))
        elif kind == "sparse":
            with open(path, "wb") as file:
                file.truncate(number(rest[0]))
        elif kind == "dir":
            os.mkdir(path)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            os.symlink(rest[0], path)

    async def step_chmod(self, path: str, mode: str) -> None:
        os.chmod(path, number(mode))

    async def step_open(self, name: str, path: str, mode: str) -> None:
        await self.add(name, os.open(path, flags_of(mode)))

    async def step_pipe(self, reader: str, writer: str) -> None:
        for name, fd in zip((reader, writer), os.pipe(), strict=True):
            await self.add(name, fd)

    async def step_sockets(self, one: str, other: str) -> None:
        for name, end in zip((one, other), socket.socketpair(), strict=True):
            await self.add(name, end.detach())

    async def add(self, name: str, fd: int) -> None:
        self.fds[name] = fd
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            self.files[name] = _ringway.open_fd(engine(), fd, False, False, name)

    async def step_close(self, name: str) -> None:
        os.close(self.fds.pop(name))
        if file := self.files.pop(name, None):
            await run(file.close())

    async def step_seek(self, name: str, to: str) -> None:
        os.lseek(self.fds[name], number(to), os.SEEK_SET)

    async def step_put(self, name: str, data: str) -> None:
        rest = content(data)
        while rest:
            rest = rest[os.write(self.fds[name], rest) :]

    async def step_take(self, name: str, data: str) -> None:
        expected, got = content(data), b""
        while len(got) < len(expected):
            if select.select([self.fds[name]], [], [], 0)[0]:
                got += os.read(self.fds[name], len(expected) - len(got))
            await self.turn()
        assert got == expected

    async def turn(self) -> None:
        """Let the loop run. An operation that cannot be expressed ends the case."""
        await asyncio.sleep(0)
        for task in self.tasks.values():
            if task.done() and isinstance(task.exception(), Inexpressible):
                await task

    # ---- Operations ------------------------------------------------------------------------------

    async def operate(self, name: str, words: list[str], result: str) -> None:
        kind, *rest = words
        if extra := {word for word in rest if "=" not in word} - {"exact"}:
            raise Inexpressible(f"the words {', '.join(sorted(extra))}")
        given = dict(word.split("=", 1) for word in rest if "=" in word)
        method = getattr(self, f"do_{kind}", None)
        if method is None or "timeout" in given:
            raise Inexpressible(f"the operation {kind}, or a time limit of one")
        given.pop("gives", None)
        try:
            value: int = await method(name, **given)
        except OSError as error:
            value = -(error.errno or 0)
        if result in ("fd", "plain") or result.startswith("plain"):
            if result != "fd":
                raise Inexpressible("the result of a plain system call")
            assert value >= 0, errno.errorcode.get(-value)
            return
        wanted = [-getattr(errno, r[1:]) if r[:2] == "-E" else number(r) for r in result.split("/")]
        assert value in wanted, (words, value, result)
        for word in rest:
            if word.startswith("gives="):
                expected = content(word[6:])
                assert bytes(self.buffers[name][: len(expected)]) == expected

    def file(self, name: str) -> Any:
        if name not in self.files:
            raise Inexpressible(f"operations on {name}, which is no open file")
        return self.files[name]

    def offset(self, fd: str, offset: str) -> int | None:
        try:
            os.lseek(self.fds[fd], 0, os.SEEK_CUR)
        except OSError:
            return None
        return None if offset == "current" else number(offset)

    async def do_read(
        self, name: str, fd: str, len: str, offset: str = "0", skew: str = "0"
    ) -> int:
        file, size, skip = self.file(fd), number(len), number(skew)
        if size > 64 << 20:
            raise Inexpressible("a buffer of more memory than a test should have")
        at = self.offset(fd, offset)
        memory = ringway.buffer(size + skip + 1)
        memory[:] = b"\xee" * (size + skip + 1)
        self.buffers[name] = memory[skip : skip + size]
        if file.direct and (at is None or at % 512 or size % 512 or skip):
            raise Inexpressible("direct reads without alignment, which succeed in Python")
        if at is not None:
            return await run(file.readinto_at(self.buffers[name], at))
        data = await run(file.read_next(size))
        self.buffers[name][: data.__len__()] = data
        return data.__len__()

    async def do_write(
        self, name: str, fd: str, data: str, offset: str = "0", skew: str = "0"
    ) -> int:
        file, at, raw, skip = self.file(fd), self.offset(fd, offset), content(data), number(skew)
        memory = ringway.buffer(len(raw) + skip + 1)
        memory[skip : skip + len(raw)] = raw
        self.buffers[name] = memory[skip : skip + len(raw)]
        return await run(file.write_at(self.buffers[name], at, False))

    async def do_fsync(self, name: str, fd: str) -> int:
        await run(self.file(fd).sync(False))
        return 0

    async def do_fdatasync(self, name: str, fd: str) -> int:
        await run(self.file(fd).sync(True))
        return 0

    async def do_ftruncate(self, name: str, fd: str, len: str) -> int:
        await run(self.file(fd).truncate(number(len)))
        return 0

    async def do_open(
        self, name: str, path: str, flags: str = "0", mode: str = "0", **rest: str
    ) -> int:
        if rest:
            raise Inexpressible(f"open with {', '.join(rest)}")
        bits = 0 if flags == "0" else flags_of(flags)
        if os.path.isdir(path_of(path)):
            raise Inexpressible("the open of a directory, which open refuses")
        file, _ = await run(
            _ringway.open(engine(), path_of(path), bits, number(mode), False, False, path)
        )
        self.files[name], self.fds[name] = file, file.duplicate()
        return 0

    def directory(self, name: str | None) -> int | None:
        if name in (None, "cwd"):
            return None
        if name not in self.fds:
            raise Inexpressible(f"the directory {name}")
        return self.fds[str(name)]

    async def do_statx(self, name: str, path: str, dir: str | None = None, **rest: str) -> int:
        known = {"0": True, "AT_SYMLINK_NOFOLLOW": False}
        follow = known.get(rest.pop("flags", "0"))
        if follow is None:
            raise Inexpressible("statx with other flags")
        rest.pop("mask", None)
        if rest or path == '""':
            raise Inexpressible("statx with an empty path")
        call = _ringway.stat(engine(), path_of(path), follow, self.directory(dir), path)
        self.stats[name] = await run(call)
        return 0

    async def do_rename(
        self,
        name: str,
        path: str,
        path2: str,
        dir: str | None = None,
        dir2: str | None = None,
        **rest: str,
    ) -> int:
        if rest:
            raise Inexpressible("rename with flags")
        dirs = (self.directory(dir), self.directory(dir2))
        await run(_ringway.rename(engine(), path_of(path), path_of(path2), *dirs, None))
        return 0

    async def do_link(
        self,
        name: str,
        path: str,
        path2: str,
        dir: str | None = None,
        dir2: str | None = None,
        **rest: str,
    ) -> int:
        if rest:
            raise Inexpressible("link with flags")
        dirs = (self.directory(dir), self.directory(dir2))
        await run(_ringway.link(engine(), path_of(path), path_of(path2), *dirs, False, None))
        return 0

    async def do_unlink(
        self, name: str, path: str, dir: str | None = None, flags: str = "0"
    ) -> int:
        if flags not in ("0", "AT_REMOVEDIR"):
            raise Inexpressible(f"unlink with {flags}")
        is_dir = flags == "AT_REMOVEDIR"
        await run(_ringway.remove(engine(), path_of(path), is_dir, self.directory(dir), None))
        return 0

    async def do_mkdir(self, name: str, path: str, mode: str, dir: str | None = None) -> int:
        call = _ringway.mkdir(engine(), path_of(path), number(mode), self.directory(dir), None)
        await run(call)
        return 0

    async def do_symlink(self, name: str, path: str, target: str, dir: str | None = None) -> int:
        call = _ringway.symlink(engine(), path_of(target), path_of(path), self.directory(dir), None)
        await run(call)
        return 0

    # ---- Checks ----------------------------------------------------------------------------------

    async def step_bytes(self, name: str, at: str, data: str) -> None:
        start, expected = number(at), content(data)
        assert bytes(self.buffers[name][start : start + len(expected)]) == expected

    async def step_stat(self, name: str, what: str, value: str) -> None:
        mode, _, _, links, _, _, size, *_ = self.stats[name]
        if what == "type":
            assert self.type_of(mode) == value
        elif what == "same":
            assert ringway.os.stat_result(self.stats[name]) == os.lstat(value)
        else:
            found = {"size": size, "mode": stat.S_IMODE(mode), "nlink": links}[what]
            assert found == number(value)

    @staticmethod
    def type_of(mode: int) -> str:
        tests = {
            "file": stat.S_ISREG,
            "dir": stat.S_ISDIR,
            "symlink": stat.S_ISLNK,
            "fifo": stat.S_ISFIFO,
        }
        return next(name for name, test in tests.items() if test(mode))

    async def step_file(self, path: str, data: str) -> None:
        assert Path(path).read_bytes() == content(data)

    async def step_part(self, path: str, at: str, data: str) -> None:
        expected = content(data)
        with open(path, "rb") as file:
            file.seek(number(at))
            assert file.read(len(expected)) == expected

    async def step_size(self, path: str, size: str) -> None:
        assert os.lstat(path).st_size == number(size)

    async def step_mode(self, path: str, mode: str) -> None:
        assert stat.S_IMODE(os.lstat(path).st_mode) == number(mode)

    async def step_nlink(self, path: str, count: str) -> None:
        assert os.lstat(path).st_nlink == number(count)

    async def step_type(self, path: str, kind: str) -> None:
        assert self.type_of(os.lstat(path).st_mode) == kind

    async def step_target(self, path: str, text: str) -> None:
        assert os.readlink(path) == path_of(text)

    async def step_same(self, one: str, other: str) -> None:
        assert os.path.samestat(os.lstat(one), os.lstat(other))

    async def step_absent(self, path: str) -> None:
        assert not os.path.lexists(path)

    async def step_position(self, name: str, at: str) -> None:
        assert os.lseek(self.fds[name], 0, os.SEEK_CUR) == number(at)

    async def step_cloexec(self, name: str) -> None:
        assert not os.get_inheritable(self.fds[name])

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        for file in self.files.values():
            await run(file.close())
        for fd in self.fds.values():
            os.close(fd)


expressed = 0


@pytest.mark.parametrize("steps", cases())
def test_case(steps: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    global expressed
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        case = Case()
        try:
            for words in steps:
                await case.step(words)
            await asyncio.gather(*case.tasks.values())
        finally:
            await case.end()

    old = os.umask(0o022)
    try:
        asyncio.run(asyncio.wait_for(main(), TIME_LIMIT))
    except Inexpressible as reason:
        pytest.skip(f"cannot express {reason}")
    finally:
        os.umask(old)
    expressed += 1


def test_most_of_what_can_be_expressed_was(request: pytest.FixtureRequest) -> None:
    selected = sum(
        getattr(item, "originalname", "") == "test_case" for item in request.session.items
    )
    if selected < len(cases()):
        pytest.skip(f"{selected} of {len(cases())} cases were selected")
    assert expressed >= LEAST
