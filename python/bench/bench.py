"""Measures ringway next to aiofiles, aiofile (caio), anyio, `to_thread` and a pool of threads.

    python bench/bench.py [WORK ...] [--seconds 1] [--rounds 5] [--dir DIRECTORY]

Contestants take turns in each round. It prints records of operations (or MiB) per second, and of
CPU time per operation of all threads of the process; `make bench` makes tables of them
(crates/ringway-measure/src/records.rs). Works: cached, direct, files, ranges, tensors, limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiofile
import aiofiles
import anyio
import caio
import numpy as np
import safetensors.numpy

import ringway

KIB, MIB = 1 << 10, 1 << 20
PAGE = 4 * KIB
CPU = "CPU µs each"
# A contestant of one round: it does some work, and returns the number of operations.
Contestant = Callable[[], Awaitable[int]]
Rows = dict[str, Contestant]


class Settings(argparse.Namespace):
    """The command's arguments."""

    seconds: float
    rounds: int
    dir: Path
    works: list[str]


async def until(seconds: float, tasks: int, one: Callable[[random.Random], Awaitable[Any]]) -> int:
    """Let tasks repeat an operation for some time. Return the number of operations."""
    end, total = time.perf_counter() + seconds, 0

    async def work(seed: int) -> None:
        nonlocal total
        rng = random.Random(seed)
        while time.perf_counter() < end:
            await one(rng)
            total += 1

    await asyncio.gather(*(work(seed) for seed in range(tasks)))
    return total


def record(kind: str, content: object) -> None:
    """Print one record."""
    print(json.dumps({kind: content}, ensure_ascii=False), flush=True)


def measure(
    title: str,
    unit: str,
    rows: Rows,
    settings: Settings,
    *,
    scale: float = 1,
    cold: list[Path] | None = None,
) -> None:
    """Run the contestants in turn, and print a record of each turn.

    Before each run, which is not measured, the files of ``cold`` leave the page cache.
    """
    first = next(iter(rows))
    speed = {"figure": unit, "range": True, "ratios": {f"of {first}": first}}
    record("columns", [speed, {"figure": CPU, "range": True}])

    async def rounds() -> None:
        for number in range(1, settings.rounds + 1):
            for name, run in rows.items():
                drop_cache(cold or [])
                wall, cpu = time.perf_counter(), time.process_time()
                count = await run()
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                figures = {unit: count * scale / wall, CPU: cpu / count / scale * 1e6}
                turn = {"row": title, "contestant": name, "round": number, "figures": figures}
                record("turn", turn)

    asyncio.run(rounds())


def make_file(path: Path, size: int) -> Path:
    """A file of random bytes."""
    if not path.exists() or path.stat().st_size != size:
        block = os.urandom(MIB)
        with open(path, "wb") as file:
            for _ in range(size // MIB):
                file.write(block)
            os.fsync(file.fileno())
    return path


def drop_cache(paths: list[Path]) -> None:
    """Remove files from the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def cached(settings: Settings) -> None:
    """Reads of 4 KiB at random offsets of a cached file."""
    path = make_file(settings.dir / "cached", 16 * MIB)
    path.read_bytes()
    for tasks in (1, 64):
        rows = cached_rows(settings, path, tasks)
        measure(f"cached 4 KiB reads, {tasks} tasks", "reads/s", rows, settings)


def cached_rows(settings: Settings, path: Path, tasks: int) -> Rows:
    pages = path.stat().st_size // PAGE

    async def ours() -> int:
        async with ringway.open(path, "rb") as file:
            return await until(
                settings.seconds,
                tasks,
                lambda rng: file.read_at(PAGE, rng.randrange(pages) * PAGE),
            )

    async def positions(open_file: Any) -> int:
        """With a file for each task, because aiofiles and anyio have only positions."""
        async with AsyncExitStack() as stack:
            free = [await stack.enter_async_context(await open_file()) for _ in range(tasks)]

            async def one(rng: random.Random) -> None:
                file = free.pop()
                await file.seek(rng.randrange(pages) * PAGE)
                await file.read(PAGE)
                free.append(file)

            return await until(settings.seconds, tasks, one)

    async def aiofiles_file(buffering: int) -> Any:
        return aiofiles.open(path, "rb", buffering=buffering)

    async def theirs_aiofile() -> int:
        async with aiofile.async_open(path, "rb") as file:
            return await until(
                settings.seconds,
                tasks,
                lambda rng: file.file.read_bytes(PAGE, rng.randrange(pages) * PAGE),
            )

    async def anyio_file() -> Any:
        return await anyio.open_file(path, "rb", buffering=0)

    async def threads() -> int:
        fd = os.open(path, os.O_RDONLY)
        try:
            return await until(
                settings.seconds,
                tasks,
                lambda rng: asyncio.to_thread(os.pread, fd, PAGE, rng.randrange(pages) * PAGE),
            )
        finally:
            os.close(fd)

    return {
        "ringway": ours,
        "ringway, seek and read": lambda: positions(ringway_file(path)),
        "aiofiles": lambda: positions(lambda: aiofiles_file(-1)),
        "aiofiles, buffering=0": lambda: positions(lambda: aiofiles_file(0)),
        f"aiofile ({caio_name()})": theirs_aiofile,
        "anyio": lambda: positions(anyio_file),
        "to_thread(os.pread)": threads,
    }


def ringway_file(path: Path) -> Any:
    async def opened() -> Any:
        return ringway.open(path, "rb")

    return opened


def caio_name() -> str:
    return caio.AsyncioContext.__module__.rsplit(".", 1)[-1]


def direct(settings: Settings) -> None:
    """Direct reads of 4 KiB at random offsets."""
    path = make_file(settings.dir / "direct", 256 * MIB)
    for tasks in (64, 256):
        rows = direct_rows(settings, path, tasks)
        measure(f"direct 4 KiB reads, {tasks} tasks", "reads/s", rows, settings)


def direct_rows(settings: Settings, path: Path, tasks: int) -> Rows:
    pages = path.stat().st_size // PAGE

    async def ours() -> int:
        buffers = [ringway.buffer(PAGE) for _ in range(tasks)]

        async def one(rng: random.Random) -> None:
            buffer = buffers.pop()
            await file.readinto_at(buffer, rng.randrange(pages) * PAGE)
            buffers.append(buffer)

        async with ringway.open(path, "rb", direct=True) as file:
            return await until(settings.seconds, tasks, one)

    async def threads() -> int:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        buffers = [ringway.buffer(PAGE) for _ in range(tasks)]

        async def one(rng: random.Random) -> None:
            buffer = buffers.pop()
            at = rng.randrange(pages) * PAGE
            await asyncio.to_thread(os.preadv, fd, [buffer], at)
            buffers.append(buffer)

        try:
            return await until(settings.seconds, tasks, one)
        finally:
            os.close(fd)

    # caio is missing: its own buffers are not aligned, so direct reads fail with EINVAL.
    return {"ringway": ours, "to_thread(os.preadv)": threads}


def files(settings: Settings) -> None:
    """Files of 8 KiB read whole."""
    count = 10_000
    directory = settings.dir / "files"
    directory.mkdir(exist_ok=True)
    paths = [directory / str(number) for number in range(count)]
    if not paths[-1].exists():
        for path in paths:
            path.write_bytes(os.urandom(8 * KIB))
        os.sync()

    async def limited(one: Callable[[Path], Awaitable[Any]]) -> int:
        rest = iter(paths)

        async def work() -> None:
            for path in rest:
                await one(path)

        await asyncio.gather(*(work() for _ in range(64)))
        return count

    async def many() -> int:
        await asyncio.to_thread(ringway.read_many, paths)
        return count

    async def theirs() -> int:
        async def one(path: Path) -> None:
            async with aiofiles.open(path, "rb") as file:
                await file.read()

        return await limited(one)

    async def pool() -> int:
        # Like the others, but for read_many, without keeping what was read.
        def read(path: Path) -> None:
            path.read_bytes()

        with ThreadPoolExecutor(32) as threads:
            await asyncio.to_thread(lambda: list(threads.map(read, paths)))
        return count

    rows: Rows = {
        "ringway": lambda: limited(ringway.read_file),
        "ringway.read_many": many,
        "aiofiles": theirs,
        "32 threads": pool,
    }
    for path in paths:
        path.read_bytes()
    measure(f"{count} files of 8 KiB, cached", "files/s", rows, settings)
    measure(f"{count} files of 8 KiB, cold", "files/s", rows, settings, cold=paths)


def ranges(settings: Settings) -> None:
    """Cold ranges of 64 KiB into one array."""
    path = make_file(settings.dir / "ranges", 256 * MIB)
    size, count = 64 * KIB, 256
    rng = random.Random(1)
    wanted = [(rng.randrange(256 * MIB // size) * size, size) for _ in range(count)]

    async def ours() -> int:
        array = np.empty(count * size, np.uint8)
        async with ringway.open(path, "rb") as file:
            await file.read_ranges(wanted, out=array)
        return count

    async def pool() -> int:
        array = np.empty(count * size, np.uint8)
        fd = os.open(path, os.O_RDONLY)

        def one(index: int) -> None:
            part = array[index * size : (index + 1) * size]
            os.preadv(fd, [part], wanted[index][0])

        with ThreadPoolExecutor(32) as threads:
            await asyncio.to_thread(lambda: list(threads.map(one, range(count))))
        os.close(fd)
        return count

    rows: Rows = {"ringway": ours, "32 threads, os.preadv": pool}
    measure("256 ranges of 64 KiB, cold", "ranges/s", rows, settings, cold=[path])


def tensors(settings: Settings) -> None:
    """A cold safetensors file of many tensors."""
    path = settings.dir / "tensors"
    if not path.exists():
        arrays = {str(at): np.ones((4 << 20) + 1024 * at, np.uint8) for at in range(480)}
        safetensors.numpy.save_file(arrays, path)
        os.sync()

    def load(function: Callable[..., Any], **named: Any) -> Contestant:
        async def run() -> int:
            await asyncio.to_thread(function, path, **named)
            return path.stat().st_size

        return run

    rows: Rows = {
        "ringway": load(ringway.safetensors.load_file),
        "safetensors (mmap)": load(safetensors.numpy.load_file),
        "safetensors (pread)": load(safetensors.numpy.load_file, backend="pread"),
    }
    title = "safetensors, 2 GiB in 480 tensors, cold"
    measure(title, "MiB/s", rows, settings, scale=1 / MIB, cold=[path])


def limit(settings: Settings) -> None:
    """A cached read next to awaits that do nothing: where the time of a read goes."""
    path = make_file(settings.dir / "cached", 16 * MIB)
    path.read_bytes()

    async def nothing() -> None:
        pass

    def loop(make: Callable[[], Awaitable[Any]]) -> Contestant:
        async def run() -> int:
            for _ in range(20_000):
                await make()
            return 20_000

        return run

    async def with_file(use: Callable[[Any], Contestant]) -> int:
        async with ringway.open(path, "rb") as file:
            return await use(file)()

    def system_call() -> Contestant:
        async def run() -> int:
            fd, buffer = os.open(path, os.O_RDONLY), bytearray(PAGE)
            for _ in range(20_000):
                os.preadv(fd, [buffer], 0, os.RWF_NOWAIT)
            os.close(fd)
            return 20_000

        return run

    def extension(file: Any) -> Contestant:
        async def run() -> int:
            for _ in range(20_000):
                file._file.read_at(PAGE, 0, PAGE)
            return 20_000

        return run

    rows: Rows = {
        "ringway, await read_at(4096)": lambda: with_file(
            lambda file: loop(lambda: file.read_at(PAGE, 0))
        ),
        "of this the extension's function": lambda: with_file(extension),
        "of this os.preadv(RWF_NOWAIT)": system_call(),
        "await a coroutine of nothing": loop(nothing),
        "await asyncio.sleep(0)": loop(lambda: asyncio.sleep(0)),
    }
    measure("the limit", "awaits/s", rows, settings)


WORKS = {work.__name__: work for work in (cached, direct, files, ranges, tensors, limit)}


def arguments() -> Iterator[Settings]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("works", nargs="*", metavar="WORK", help=", ".join(WORKS))
    parser.add_argument("--seconds", type=float, default=1, help="of one contestant in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="for the files: on a disk (default: TMPDIR)")
    settings = parser.parse_args(namespace=Settings())
    unknown = [work for work in settings.works if work not in WORKS]
    if unknown:
        parser.error(f"no such work: {', '.join(unknown)}; there are {', '.join(WORKS)}")
    if settings.dir is not None:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="ringway-bench-") as directory:
        settings.dir = Path(directory)
        yield settings


def main() -> None:
    for settings in arguments():
        machine = (
            f"Python {platform.python_version()}, {os.cpu_count()} processors, "
            f"CAIO_IMPL {os.environ.get('CAIO_IMPL', 'default')}: {caio_name()}"
        )
        for line in [machine, *asyncio.run(ringway.explain()).splitlines()]:
            record("head", line)
        for work in settings.works or WORKS:
            WORKS[work](settings)


if __name__ == "__main__":
    sys.exit(main())
