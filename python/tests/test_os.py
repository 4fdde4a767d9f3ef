"""The functions on paths, compared with those of os and os.path."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiofiles
import aiofiles.os
import aiofiles.ospath
import aiofiles.tempfile
import aiofiles.threadpool
import pytest

import ringway
import ringway.os as ros

pytestmark = pytest.mark.usefixtures("descriptors")


async def outcome(call: Awaitable[Any]) -> Any:
    """The result, or the error as text."""
    try:
        return await call
    except OSError as error:
        return (type(error), str(error), error.filename, error.filename2)


def theirs(function: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return function(*arguments, **named)
    except OSError as error:
        return (type(error), str(error), error.filename, error.filename2)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


NAMES: list[Any] = ["file", b"file", Path("file"), "dir", "link", "dangling", "fifo", "none", ""]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("follow", [True, False])
async def test_stat(tree: Path, name: Any, follow: bool) -> None:
    ours = await outcome(ros.stat(name, follow_symlinks=follow))
    expected = theirs(os.stat, name, follow_symlinks=follow)
    assert ours == expected
    if isinstance(expected, os.stat_result):
        fields = [field for field in dir(expected) if field.startswith("st_")]
        assert {field: getattr(ours, field) for field in fields} == {
            field: getattr(expected, field) for field in fields
        }
    directory = os.open(tree, os.O_RDONLY)
    assert await outcome(ros.stat(name, dir_fd=directory, follow_symlinks=follow)) == expected
    os.close(directory)


def test_functions_can_be_pickled() -> None:
    """As tasks for other processes name them."""
    for name in ros.__all__:
        if name != "path":
            function = getattr(ros, name)
            assert pickle.loads(pickle.dumps(function)) is function
            assert (function.__module__, function.__qualname__) == ("ringway.os", name)


async def test_stat_of_descriptors(tree: Path) -> None:
    with open(tree / "file") as file:
        assert await ros.stat(file.fileno()) == os.stat(file.fileno())
        assert await ros.path.sameopenfile(file.fileno(), file.fileno())
        assert await ros.statvfs(file.fileno()) is not None
    with pytest.raises(OSError) as raised:
        await ros.stat(12345)
    assert (raised.value.errno, raised.value.filename) == (9, 12345)


@pytest.mark.parametrize("name", NAMES)
async def test_questions(tree: Path, name: Any) -> None:
    for question in ("exists", "isfile", "isdir", "islink", "ismount", "abspath"):
        expected = getattr(os.path, question)(name)
        assert await getattr(ringway.path, question)(name) == expected, question
    for question in ("getsize", "getatime", "getmtime", "getctime"):
        expected = theirs(getattr(os.path, question), name)
        assert await outcome(getattr(ringway.path, question)(name)) == expected, question
    assert await outcome(ringway.path.samefile(name, "file")) == theirs(
        os.path.samefile, name, "file"
    )
    for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK):
        assert await ros.access(name, mode) == os.access(name, mode)
        assert await ros.access(name, mode, effective_ids=True) == os.access(
            name, mode, effective_ids=True
        )
    assert await outcome(ros.readlink(name)) == theirs(os.readlink, name)


async def test_mount_points() -> None:
    for name in ("/", "/proc", "/etc"):
        assert await ringway.path.ismount(name) == os.path.ismount(name)


async def test_listing(tree: Path) -> None:
    for name in (".", str(tree), os.fsencode(tree), tree, None):
        assert sorted(await ros.listdir(name)) == sorted(os.listdir(name))
        ours = {entry.name: entry for entry in await ros.scandir(name)}
        with os.scandir(name) as entries:
            expected = {entry.name: entry for entry in entries}
        assert ours.keys() == expected.keys()
        for key, entry in expected.items():
            mine = ours[key]
            assert (mine.path, mine.inode(), mine.is_symlink()) == (
                entry.path,
                entry.inode(),
                entry.is_symlink(),
            )
            for follow in (True, False):
                assert mine.is_dir(follow_symlinks=follow) == entry.is_dir(follow_symlinks=follow)
                assert mine.is_file(follow_symlinks=follow) == entry.is_file(follow_symlinks=follow)
            assert os.fspath(mine) == os.fspath(entry)
            assert mine.stat(follow_symlinks=False) == entry.stat(follow_symlinks=False)
    directory = os.open(tree, os.O_RDONLY)
    assert sorted(await ros.listdir(directory)) == sorted(os.listdir(directory))
    os.close(directory)
    with await ros.scandir(tree) as scan:
        assert next(scan).name
    assert list(scan) == []
    for call, name in ((ros.listdir, os.listdir), (ros.scandir, os.scandir)):
        for path in ("none", "file"):
            assert await outcome(call(path)) == theirs(name, path)


CHANGES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("rename", ("file", "new"), {}),
    ("rename", ("none", "new"), {}),
    ("rename", ("file", "dir"), {}),
    ("rename", (b"file", b"new"), {}),
    ("replace", ("file", "link"), {}),
    ("renames", ("file", "a/b/new"), {}),
    ("renames", ("none", "a/new"), {}),
    ("remove", ("file",), {}),
    ("remove", ("dir",), {}),
    ("unlink", ("none",), {}),
    ("mkdir", ("new",), {}),
    ("mkdir", ("new",), {"mode": 0o700}),
    ("mkdir", ("dir",), {}),
    ("makedirs", ("a/b/c",), {}),
    ("makedirs", ("a/b/c/",), {"mode": 0o700}),
    ("makedirs", ("dir",), {}),
    ("makedirs", ("dir",), {"exist_ok": True}),
    ("makedirs", ("file",), {"exist_ok": True}),
    ("makedirs", ("file/x",), {"exist_ok": True}),
    ("rmdir", ("dir",), {}),
    ("rmdir", ("file",), {}),
    ("removedirs", ("dir",), {}),
    ("removedirs", ("none",), {}),
    ("symlink", ("file", "new"), {}),
    ("symlink", ("file", "link"), {}),
    ("link", ("file", "new"), {}),
    ("link", ("link", "new"), {}),
    ("link", ("none", "new"), {}),
]


def shape(root: Path) -> dict[str, tuple[int, int, int]]:
    """What is in a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        found[str(path.relative_to(root))] = (info.st_mode, info.st_nlink, info.st_size)
    return found


def make(root: Path) -> None:
    root.mkdir()
    (root / "file").write_bytes(b"12345")
    (root / "dir").mkdir()
    (root / "link").symlink_to("file")
    # So that removedirs does not remove the root.
    (root / "other").write_bytes(b"")


@pytest.mark.parametrize(("name", "arguments", "named"), CHANGES)
async def test_changes_are_those_of_os(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    results = []
    for root in (tmp_path / "ours", tmp_path / "theirs"):
        make(root)
        monkeypatch.chdir(root)
        if root.name == "ours":
            results.append(await outcome(getattr(ros, name)(*arguments, **named)))
        else:
            results.append(theirs(getattr(os, name), *arguments, **named))
    assert results[0] == results[1]
    assert shape(tmp_path / "ours") == shape(tmp_path / "theirs")


async def test_directories_by_descriptor(tmp_path: Path) -> None:
    one = os.open(tmp_path, os.O_RDONLY)
    await ros.mkdir("sub", dir_fd=one)
    two = os.open(tmp_path / "sub", os.O_RDONLY)
    (tmp_path / "file").write_bytes(b"1")
    await ros.rename("file", "moved", src_dir_fd=one, dst_dir_fd=two)
    assert (tmp_path / "sub" / "moved").exists()
    await ros.replace("moved", "again", src_dir_fd=two, dst_dir_fd=two)
    await ros.link("again", "hard", src_dir_fd=two, dst_dir_fd=one)
    await ros.symlink("hard", "soft", dir_fd=one)
    assert await ros.readlink("soft", dir_fd=one) == "hard"
    assert await ros.access("hard", os.R_OK, dir_fd=one)
    await ros.unlink("again", dir_fd=two)
    await ros.remove("soft", dir_fd=one)
    await ros.rmdir("sub", dir_fd=one)
    assert [path.name for path in tmp_path.iterdir()] == ["hard"]
    os.close(one)
    os.close(two)
    with pytest.raises(OSError) as raised:
        await ros.mkdir("sub", dir_fd=one)
    assert (raised.value.errno, raised.value.filename) == (9, "sub")


async def test_mode_of_a_directory(tmp_path: Path) -> None:
    await ros.mkdir(tmp_path / "private", 0o700)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700


async def test_statvfs_and_getcwd(tmp_path: Path) -> None:
    ours, expected = await ros.statvfs(tmp_path), os.statvfs(tmp_path)
    for field in ("f_bsize", "f_frsize", "f_blocks", "f_files", "f_namemax", "f_flag"):
        assert getattr(ours, field) == getattr(expected, field)
    assert await ros.getcwd() == os.getcwd()
    with pytest.raises(FileNotFoundError):
        await ros.statvfs("/none")


async def test_sendfile_of_one_call(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    one, two = socket.socketpair()
    with one, two, open(path, "rb") as file:
        assert await ros.sendfile(one.fileno(), file.fileno(), 3, 4) == 4
        assert two.recv(10) == b"3456"
        assert await ros.sendfile(one.fileno(), file.fileno(), None, 100) == 10
        with pytest.raises(OSError):
            await ros.sendfile(12345, file.fileno(), 0, 1)


async def test_null_bytes_in_paths() -> None:
    for call in (ros.stat("a\0"), ros.remove("a\0"), ros.rename("a", "b\0"), ros.listdir("\0")):
        with pytest.raises(ValueError, match=r"null (byte|character)"):
            await call
    assert not await ringway.path.exists("a\0")


@pytest.mark.parametrize("module", [ringway.os, aiofiles.os], ids=["ours", "theirs"])
async def test_functions_that_are_missing_can_be_wrapped(module: Any, tmp_path: Path) -> None:
    chmod = module.wrap(os.chmod)
    await chmod(tmp_path, mode=0o700)
    assert chmod.__name__ == "chmod" and tmp_path.stat().st_mode & 0o777 == 0o700
    with ThreadPoolExecutor(1) as pool:
        assert await module.wrap(threading.get_ident)(executor=pool) != threading.get_ident()
    with pytest.raises(FileNotFoundError):
        await chmod(tmp_path / "none", 0)


def test_all_that_aiofiles_has() -> None:
    assert set(aiofiles.os.__all__) <= set(ringway.os.__all__)
    assert set(aiofiles.ospath.__all__) <= set(ringway.path.__all__)
    assert set(aiofiles.tempfile.__all__) <= set(ringway.tempfile.__all__)
    assert set(aiofiles.threadpool.__all__) <= set(ringway.threadpool.__all__)
    assert set(aiofiles.__all__) <= set(ringway.__all__)


def test_absolute_paths_need_no_working_directory() -> None:
    """One that must not be searched, also by a user who is not root."""
    program = """
import asyncio, os, ringway, sys
import ringway.os as ros
file, link, closed = sys.argv[1:]

async def main():
    print(await ros.access(file, os.R_OK))
    print(await ros.readlink(link))
    fd = os.open("/", os.O_RDONLY)
    await ros.link(file, file + "2", src_dir_fd=fd)
    await ros.rename(file + "2", file + "3", src_dir_fd=fd)
    await ros.unlink(file + "3")
    print(await ros.access("file", os.R_OK))

# Once before, since the user may not be allowed to import what is imported late.
asyncio.run(main())
os.chdir(closed)
os.chmod(closed, 0)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    os.stat(".")
except PermissionError:
    asyncio.run(main())
"""
    # pytest's directories are those of their owner alone.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        file, link, closed = (Path(name) / part for part in ("open/file", "open/link", "closed"))
        file.parent.mkdir()
        closed.mkdir()
        file.write_bytes(b"x")
        link.symlink_to("file")
        Path(name).chmod(0o755)
        file.parent.chmod(0o777)
        file.chmod(0o666)
        command = [sys.executable, "-c", program, str(file), str(link), str(closed)]
        result = subprocess.run(command, capture_output=True, text=True)
        closed.chmod(0o755)
    assert result.stdout == "True\nfile\nFalse\n" * 2, result.stderr


async def test_directories_that_are_no_descriptors(tree: Path) -> None:
    bad = 999
    for name in ("file", str(tree / "file")):
        assert await ros.access(name, os.F_OK, dir_fd=bad) == os.access(name, os.F_OK, dir_fd=bad)
        ours = await outcome(ros.stat(name, dir_fd=bad))
        expected = theirs(os.stat, name, dir_fd=bad)
        assert getattr(ours, "st_ino", ours) == getattr(expected, "st_ino", expected)
    link = str(tree / "link")
    assert await ros.readlink(link, dir_fd=bad) == os.readlink(link, dir_fd=bad)
    await ros.mkdir(str(tree / "made"), dir_fd=bad)
    await ros.rename(str(tree / "made"), str(tree / "moved"), src_dir_fd=bad, dst_dir_fd=bad)
    await ros.rmdir(str(tree / "moved"), dir_fd=bad)
    for call in ("listdir", "scandir"):
        with pytest.raises(OSError) as raised:
            await getattr(ros, call)(bad)
        assert raised.value.errno == errno.EBADF


async def test_what_a_descriptor_is_not_asked_for(tree: Path) -> None:
    fd = os.open("file", os.O_RDONLY)
    try:
        for call, function in ((ros.stat, os.stat), (ringway.path.islink, os.path.islink)):
            named: Any = {"follow_symlinks": False} if call is ros.stat else {}
            with pytest.raises((TypeError, ValueError)) as expected:
                function(fd, **named)
            with pytest.raises(expected.type):
                await call(fd, **named)  # type: ignore[arg-type]
    finally:
        os.close(fd)


async def test_mount_points_are_looked_for_in_a_thread(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, threads = os.path.realpath, []

    def realpath(path: Any) -> Any:
        threads.append(threading.current_thread())
        return inner(path)

    monkeypatch.setattr(os.path, "realpath", realpath)
    assert await ringway.path.ismount("/proc") and not await ringway.path.ismount("dir")
    assert len(threads) == 2 and threading.current_thread() not in threads


async def test_a_descriptor_is_that_of_the_call(tmp_path: Path) -> None:
    """Not what its number stands for when a thread begins the call: a call that is cancelled may
    begin after the program has closed the descriptor."""
    if not hasattr(sys.modules["ringway._ringway"], "remove"):
        pytest.skip("the functions of os take numbers")
    directories = [tmp_path / "meant", tmp_path / "other"]
    for directory in directories:
        directory.mkdir()

    def files() -> list[list[str]]:
        return [sorted(os.listdir(directory)) for directory in directories]

    for _ in range(100):
        for directory in directories:
            for name in ("remove", "from", "target"):
                (directory / name).write_text(name)
        fd = os.open(directories[0], os.O_RDONLY)
        # What it runs keeps the threads busy for a while.
        calls = [ringway.os.access("target", os.R_OK, dir_fd=fd) for _ in range(20)]
        calls += [
            ringway.os.remove("remove", dir_fd=fd),
            ringway.os.rename("from", "to", src_dir_fd=fd, dst_dir_fd=fd),
            ringway.os.mkdir("directory", dir_fd=fd),
            ringway.os.symlink("target", "symlink", dir_fd=fd),
            ringway.os.link("target", "link", src_dir_fd=fd, dst_dir_fd=fd),
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        os.close(fd)
        assert os.open(directories[1], os.O_RDONLY) == fd
        await asyncio.gather(*tasks)
        os.close(fd)
        assert files() == [
            ["directory", "link", "symlink", "target", "to"],
            ["from", "remove", "target"],
        ]
        (directories[0] / "directory").rmdir()
        for name in ("link", "symlink", "to"):
            (directories[0] / name).unlink()


@pytest.mark.parametrize("mode", [-1, 0, 0o17777, 2**31])
async def test_a_mode_is_that_of_os(tmp_path: Path, mode: int) -> None:
    """An int of C: -1 has all bits."""

    async def ours() -> Any:
        await ros.mkdir(tmp_path / "ours", mode)
        return (tmp_path / "ours").stat().st_mode, await ros.access(tmp_path, mode)

    def theirs() -> Any:
        os.mkdir(tmp_path / "theirs", mode)
        return (tmp_path / "theirs").stat().st_mode, os.access(tmp_path, mode)

    try:
        expected = theirs()
    except OverflowError:
        with pytest.raises(OverflowError):
            await ros.access(tmp_path, mode)
        with pytest.raises(OverflowError):
            await ours()
    else:
        assert await ours() == expected
