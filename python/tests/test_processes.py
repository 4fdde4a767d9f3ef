"""Forks, threads with loops of their own, several loops, sub-interpreters, and the end of the
interpreter."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import ringway
from conftest import LOOPS


def python(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own, with variables of its environment."""
    # Python warns of a fork beside any thread, such as one that the crate reads the mounts with.
    ignored = "ignore:This process:DeprecationWarning"
    command = [sys.executable, "-X", "dev", "-W", ignored, "-c", textwrap.dedent(program)]
    command += arguments
    environment = os.environ | variables
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    # On a busy machine asyncio says in this mode that a callback took long.
    slow = re.compile(r"^Executing <.* took .* seconds\n", re.MULTILINE)
    result.stderr = slow.sub("", result.stderr)
    return result


def read(path: Path) -> bytes:
    async def main() -> bytes:
        async with ringway.open(path, "rb") as file:
            parts = await asyncio.gather(*(file.read(1000) for _ in range(60)))
        return b"".join(parts)

    return asyncio.run(main())


def child(path: Path, queue: Any) -> None:
    queue.put((read(path), ringway.read_many([path])[0]))


async def test_children_of_a_running_loop(lines: Path) -> None:
    """As multiprocessing and gunicorn fork: the parent's operations go on meanwhile."""
    expected = lines.read_bytes()
    reader_fd, writer_fd = os.pipe()
    ringway.read_many([lines])
    async with ringway.open(lines, "rb") as file, ringway.open(reader_fd, "rb", 0) as pipe:
        waiting = asyncio.ensure_future(pipe.read(5))
        await file.read(10)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        children = [context.Process(target=child, args=(lines, queue)) for _ in range(3)]
        for process in children:
            process.start()
        for _ in children:
            assert await asyncio.to_thread(queue.get, timeout=30) == (expected, expected)
        for process in children:
            await asyncio.to_thread(process.join, 30)
            assert process.exitcode == 0
        os.write(writer_fd, b"still")
        assert await waiting == b"still"
        assert await file.read() == expected[10:]
    os.close(writer_fd)


def test_a_file_of_the_parent_says_what_to_do_in_the_child(lines: Path) -> None:
    result = python(
        """
        import asyncio, os, sys, ringway

        async def parent():
            return await ringway.open(sys.argv[1], "rb")

        async def child(file):
            try:
                await file.read(1)
            except RuntimeError as error:
                print(error)
            # What the crate says, below that.
            out = file._file.sync(False)
            try:
                await out.future if hasattr(out, "future") else out
            except OSError as error:
                print(error)

        loop = asyncio.new_event_loop()
        file = loop.run_until_complete(parent())
        if os.fork() == 0:
            try:
                asyncio.run(child(file))
            except OSError as error:
                print(error)
            sys.stdout.flush()
            os._exit(0)
        os.wait()
        loop.run_until_complete(file.close())
        loop.close()
        """,
        str(lines),
    )
    assert result.returncode == 0 and result.stderr == ""
    assert "open it in this one" in result.stdout
    assert "belongs to the parent process" in result.stdout


def test_what_a_buffer_runs_at_its_end_may_cancel(lines: Path) -> None:
    """Objects are released outside of all locks of the extension module."""
    result = python(
        """
        import asyncio, os, ringway

        operations, ended = [], []

        class Buffer(bytearray):
            def __del__(self):
                operations[0].cancel()
                ended.append(self)

        async def main():
            reader, writer = os.pipe()
            async with ringway.open(reader, "rb") as pipe:
                operations.append(pipe._file.readinto_at(Buffer(4), 0))
                os.write(writer, b"1234")
                print(await operations[0].future)
                print(ended)
            os.close(writer)

        asyncio.run(main())
        """
    )
    assert (result.stdout, result.stderr) == ("4\n[Buffer(b'1234')]\n", "")


def test_forks_while_threads_release_memory(lines: Path) -> None:
    """Memory is released without the interpreter's lock; no child waits for a lock of that."""
    result = python(
        """
        import asyncio, os, sys, threading, time, ringway

        ends = False

        def work():
            while not ends:
                buffers = [bytearray(64) for _ in range(64)]
                ringway.readinto_many([(sys.argv[1], 64 * at) for at in range(64)], buffers)

        async def child():
            async with ringway.open(sys.argv[1], "rb") as file:
                buffer = bytearray(10)
                await file.readinto_at(buffer, 0)
                buffer.append(0)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                asyncio.run(child())
                os._exit(0)
            assert os.waitpid(pid, 0) == (pid, 0)
        ends = True
        for thread in threads:
            thread.join()
        print("all ended")
        """,
        str(lines),
    )
    assert (result.stdout, result.stderr) == ("all ended\n", "")


@pytest.mark.parametrize("name", list(LOOPS))
def test_threads_with_loops_of_their_own(lines: Path, name: str) -> None:
    expected, results = lines.read_bytes(), []

    def work() -> None:
        async def main() -> bytes:
            async with ringway.open(lines, "rb") as file:
                return b"".join(await asyncio.gather(*(file.read(1000) for _ in range(60))))

        loop = LOOPS[name]()
        for _ in range(3):
            results.append(loop.run_until_complete(main()))
        loop.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 18


def test_loops_one_after_the_other(lines: Path) -> None:
    for _ in range(20):
        assert read(lines) == lines.read_bytes()


def test_another_loop_is_refused(lines: Path) -> None:
    async def make() -> ringway.AsyncFile:
        return await ringway.open(lines, "rb")

    async def use(file: ringway.AsyncFile) -> None:
        for call in (file.read(1), file.read_at(1, 0), file.close()):
            with pytest.raises(RuntimeError, match="open it in this one"):
                await call

    loop = asyncio.new_event_loop()
    file = loop.run_until_complete(make())
    asyncio.run(use(file))
    loop.run_until_complete(file.close())
    loop.close()


def test_a_loop_without_descriptors_is_woken_by_a_thread(lines: Path) -> None:
    """As the loops of Windows are."""

    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, *_: object) -> None:  # type: ignore[override]
            raise NotImplementedError

        def _add_reader(self, *arguments: Any) -> Any:
            return super()._add_reader(*arguments)  # type: ignore[misc]

    async def main() -> bytes:
        reader_fd, writer_fd = os.pipe()
        async with ringway.open(lines, "rb") as file, ringway.open(reader_fd, "rb", 0) as pipe:
            waiting = asyncio.ensure_future(pipe.read(5))
            await asyncio.sleep(0.01)
            os.write(writer_fd, b"woken")
            os.close(writer_fd)
            assert await asyncio.wait_for(waiting, 10) == b"woken"
            return b"".join(await asyncio.gather(*(file.read(1000) for _ in range(60))))

    loop = Loop()
    assert loop.run_until_complete(main()) == lines.read_bytes()
    loop.close()


def test_a_refused_backend_is_the_only_error() -> None:
    """ENOSYS of a backend is no sign of a system without descriptors for loops."""
    result = python(
        """
        import asyncio, ctypes, errno, ringway, struct

        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

        IO_URING_SETUP, ERRNO, ALLOW = 425, 0x50000, 0x7FFF0000
        code = [
            (0x20, 0, 0, 0),  # the number of the system call
            (0x15, 0, 1, IO_URING_SETUP),
            (0x06, 0, 0, ERRNO | errno.ENOSYS),
            (0x06, 0, 0, ALLOW),
        ]
        code = b"".join(struct.pack("HBBI", *line) for line in code)
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
        assert prctl(22, 2, ctypes.byref(Program(len(code) // 8, code)), 0, 0) == 0

        async def main():
            try:
                await ringway.explain()
            except OSError as error:
                assert error.errno == errno.ENOSYS and "io_uring" in str(error), error
                assert error.__context__ is None, error.__context__
                print("refused")

        asyncio.run(main())
        """,
        RINGWAY_BACKEND="uring",
    )
    assert result.stdout == "refused\n", result.stderr


@pytest.mark.parametrize("end", ["return", "sys.exit(3)", "raise SystemExit(3)", "1 / 0"])
def test_the_interpreter_ends_with_operations_in_flight(end: str) -> None:
    result = python(
        f"""
        import asyncio, os, sys, threading, ringway

        async def main():
            reader, writer = os.pipe()
            file = await ringway.open(reader, "rb")
            tasks = [asyncio.ensure_future(file.read(1))]
            tasks += [asyncio.ensure_future(file.readinto_at(bytearray(10), 0))]
            await asyncio.sleep(0.01)
            threading.Thread(target=ringway.readinto_many, daemon=True,
                             args=([(reader, 0)], [bytearray(1)])).start()
            {end}

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        """
    )
    assert result.returncode == {"return": 0, "1 / 0": 1}.get(end, 3), result.stderr
    assert "Fatal" not in result.stderr and "panicked" not in result.stderr


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs _xxsubinterpreters of 3.12")
def test_sub_interpreters_are_refused() -> None:
    result = python(
        """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import ringway
        made = interpreters.create()
        print(interpreters.run_string(made, "import ringway"))
        """
    )
    assert "ImportError" in result.stdout + result.stderr


def test_without_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        ringway.open("/etc/passwd").__await__().send(None)


@pytest.mark.parametrize("backend", ["uring", "kaio", "threads"])
@pytest.mark.parametrize("end", ["closes", "cancels", "keeps the files", "leaves the loop"])
def test_writes_that_go_on_end_after_the_loop(tmp_path: Path, backend: str, end: str) -> None:
    """A write that has begun is not cancelled by the end of its loop, nor by that of the
    interpreter."""
    result = python(
        f"""
        import asyncio, ringway
        end, files = {end!r}, []

        async def one(index):
            file = await ringway.open(f"{tmp_path}/{{index}}", "wb", buffering=2 << 20)
            await file.write(bytes([index]) * (1 << 20))
            files.append(file)

        async def main():
            await asyncio.gather(*(one(index) for index in range(100)))
            step = "flush" if end == "cancels" else "close"
            tasks = [asyncio.ensure_future(getattr(file, step)()) for file in files]
            if end != "keeps the files":
                files.clear()
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        if end == "leaves the loop":
            loop = asyncio.new_event_loop()
            loop.run_until_complete(main())
        else:
            asyncio.run(main())
        """,
        RINGWAY_BACKEND=backend,
    )
    if "OSError" in result.stderr:
        pytest.skip(f"{backend} is refused here: {result.stderr}")
    assert result.returncode == 0, result.stderr
    wrong = [
        index
        for index in range(100)
        if (tmp_path / str(index)).read_bytes() != bytes([index]) * (1 << 20)
    ]
    assert not wrong


def test_the_end_of_the_interpreter_does_not_wait_for_ever() -> None:
    result = python(
        """
        import asyncio, os, ringway, sys

        async def main():
            reader, writer = os.pipe()
            file = await ringway.open(writer, "wb", 0)
            writing = asyncio.ensure_future(file.write(bytes(1 << 20)))
            await asyncio.sleep(0.01)
            writing.cancel()

        sys.modules["ringway._engine"]._exit_seconds = 0.2
        asyncio.run(main())
        """
    )
    assert result.returncode == 0, result.stderr
    assert "RuntimeWarning: ringway: writes were cut off by the exit" in result.stderr


def test_writes_of_the_parent_do_not_keep_a_child(tmp_path: Path) -> None:
    result = python(
        """
        import asyncio, os, ringway, sys, time

        async def main():
            reader, writer = os.pipe()
            file = await ringway.open(writer, "wb", 0)
            writing = asyncio.ensure_future(file.write(bytes(1 << 20)))
            await asyncio.sleep(0.01)
            writing.cancel()
            return reader

        reader = asyncio.run(main())
        child = os.fork()
        if not child:
            sys.exit(7)
        begun = time.monotonic()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(time.monotonic() - begun < 20)
        left = 1 << 20
        while left:
            left -= len(os.read(reader, left))
        """
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "True\n" and "cut off" not in result.stderr


@pytest.mark.parametrize("loop", ["asyncio.new_event_loop", "uvloop.new_event_loop", ""])
@pytest.mark.parametrize("direct", [False, True])
def test_daemon_threads_that_read_at_the_end(tmp_path: Path, loop: str, direct: bool) -> None:
    """A thread that wants the interpreter's lock again meanwhile parks; to unwind its stack (as
    CPython before 3.14 does) would abort the process."""
    (tmp_path / "data").write_bytes(bytes(1 << 18))
    code = f"""
        import asyncio, ringway, sys, threading, time, uvloop
        path, ranges = {str(tmp_path / "data")!r}, range(0, 1 << 18, 4096)

        class Late:
            # Lets other threads run when the interpreter has begun to end.
            def __del__(self, sleep=time.sleep):
                sleep(0.02)
                for _ in range(300_000):
                    pass

        async def main():
            async with ringway.open(path, "rb", direct={direct}) as f:
                async def reads():
                    while True:
                        for offset in ranges:
                            await f.read_at(4096, offset)
                            await ringway.os.stat(path)
                await asyncio.gather(*(reads() for _ in range(16)))

        def run():
            make = {loop or None}
            if make is None:
                while True:
                    ringway.read_many([(path, offset, 4096) for offset in ranges], direct={direct})
            loop = make()
            asyncio.set_event_loop(loop)
            loop.run_until_complete(main())

        late = Late()
        # Threads give up the lock wherever they can.
        sys.setswitchinterval(1e-6)
        for _ in range(2):
            threading.Thread(target=run, daemon=True).start()
        time.sleep(0.1)
    """
    for _ in range(8):
        result = python(code)
        assert (result.returncode, result.stderr) == (0, "")


BUFFERS = """
        class Slow:
            def __buffer__(self, flags, sleep=time.sleep, view=memoryview, memory=bytearray):
                sleep(0.0001)
                return view(memory(16))
            def __release_buffer__(self, view, sleep=time.sleep):
                sleep(0.0001)

        async def main():
            async with ringway.open(path, "rb") as f:
                while True:
                    await f.readinto_at(Slow(), 0)

        def run():
            asyncio.run(main())
"""
COLLECTIONS = """
        main = threading.get_ident()

        class Cycle:
            def __init__(self):
                self.me = self
            def __del__(self, sleep=time.sleep, here=threading.get_ident, main=main):
                if here() != main:
                    sleep(0.0001)

        gc.set_threshold(1)

        def run(read=Reader().read, disable=gc.disable, enable=gc.enable, Cycle=Cycle):
            while True:
                # No collection runs before the list is made, and none in Python's code after it.
                disable()
                Cycle()
                Cycle()
                enable()
                read([(path, [(0, 4096)], None)], False, 8)
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no such methods; collects at allocations")
@pytest.mark.parametrize("body", [BUFFERS, COLLECTIONS], ids=["buffers", "collections"])
def test_daemon_threads_in_pythons_code_at_the_end(tmp_path: Path, body: str) -> None:
    """Code that ringway's functions run: methods of buffers, and finalizers of what the garbage
    collector finds while they look for signals."""
    (tmp_path / "data").write_bytes(bytes(4096))
    code = f"""
        import asyncio, gc, ringway, sys, threading, time
        from ringway._ringway import Reader
        path = {str(tmp_path / "data")!r}

        class Late:
            # Lets other threads run when the interpreter has begun to end.
            def __del__(self, sleep=time.sleep):
                sleep(0.02)
                for _ in range(300_000):
                    pass
        {body}
        late = Late()
        # Threads give up the lock wherever they can.
        sys.setswitchinterval(1e-6)
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.1)
    """
    for _ in range(8):
        result = python(code)
        assert result.returncode == 0, result.stderr


UNREAD = """
    import asyncio, atexit, os, threading, time, ringway, sys
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    async def begin():
        file = await ringway.open(writer, "wb", 0)
        try:
            await asyncio.wait_for(file.write(b"x" * 300_000), 0.1)
        except asyncio.TimeoutError:
            return file

    async def end(file):
        total = 0
        while total < 300_000:
            try:
                total += len(os.read(reader, 1 << 16))
            except BlockingIOError:
                await asyncio.sleep(0.01)
        await asyncio.wait_for(file.write(b"more"), 10)
        await asyncio.wait_for(file.close(), 10)
        print(total, os.read(reader, 10))
"""


def test_a_loop_that_runs_at_the_exit_gets_what_it_waits_for() -> None:
    """That of a thread that is no daemon, which the interpreter's exit waits for."""
    result = python(
        textwrap.dedent(UNREAD)
        + textwrap.dedent(
            """
            async def outlive():
                file = await begin()
                begun.set()
                while threading.main_thread().is_alive():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                await end(file)

            begun = threading.Event()
            threading.Thread(target=lambda: asyncio.run(outlive())).start()
            begun.wait()
            """
        )
    )
    assert (result.stdout, result.stderr) == ("300000 b'more'\n", "")


def test_a_loop_that_runs_again_at_the_exit_gets_what_it_waits_for() -> None:
    """A thread has run the write to its end meanwhile, or still does."""
    result = python(
        textwrap.dedent(UNREAD)
        + textwrap.dedent(
            """
            sys.modules["ringway._engine"]._exit_seconds = 0.1
            loop = asyncio.new_event_loop()
            file = loop.run_until_complete(begin())
            atexit.register(lambda: loop.run_until_complete(end(file)))
            """
        )
    )
    assert result.stdout == "300000 b'more'\n", result.stderr


def test_threads_may_build_engines_while_the_interpreter_ends() -> None:
    """The exit waits for writes of all loops, however many threads begin new ones meanwhile."""
    result = python(
        """
        import ringway, sys, threading, time

        module = sys.modules["ringway._engine"]

        class Loop:
            def is_running(self):
                return True

        class Engine:
            def end(self):
                pass

        loops, ends = [], False

        def build():
            while not ends:
                loops.append(Loop())
                module._engines[loops[-1]] = Engine()
                if len(loops) > 300:
                    loops.clear()

        sys.setswitchinterval(1e-6)
        thread = threading.Thread(target=build, daemon=True)
        thread.start()
        until, rounds = time.monotonic() + 1, 0
        while rounds < 100 or time.monotonic() < until:
            module._finish_idle()
            rounds += 1
        ends = True
        thread.join()
        print("done")
        """
    )
    assert (result.stdout, result.stderr) == ("done\n", "")
