"""Sending files: sockets, transports and streams, plain and TLS."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import struct
import subprocess
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import ringway
from conftest import drop_cache
from ringway import _sendfile

pytestmark = pytest.mark.usefixtures("descriptors")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(1 << 20) * 5 + b"end")
    return path


RANGES = [(0, None), (0, 10), (3, 1 << 20), (5 << 20, None), (1 << 30, 5), (10, 1 << 30), (7, 0)]


async def exchange(send: Any, secure: Path | None = None) -> bytes:
    """What a client receives of a server that sends."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await send(writer)
        finally:
            writer.close()

    context = checked = None
    if secure is not None:
        context, checked = contexts(secure)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=checked)
    received = await reader.read()
    writer.close()
    server.close()
    await server.wait_closed()
    return received


@pytest.mark.parametrize(("offset", "count"), RANGES)
@pytest.mark.parametrize("target", ["transport", "writer"])
async def test_ranges(large: Path, offset: int, count: int | None, target: str) -> None:
    expected = large.read_bytes()[offset : None if count is None else offset + count]
    sent = []

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(b"before ")
        async with ringway.open(large, "rb") as file:
            to = writer if target == "writer" else writer.transport
            sent.append(await ringway.sendfile(to, file, offset, count))
            assert await file.tell() == 0
        writer.write(b" after")
        await writer.drain()

    assert await exchange(send) == b"before " + expected + b" after"
    assert sent == [len(expected)]


async def test_sockets(large: Path) -> None:
    one, two = socket.socketpair()
    one.setblocking(False)
    two.setblocking(False)
    loop = asyncio.get_running_loop()
    with one, two:
        async with ringway.open(large, "rb") as file:
            sending = asyncio.ensure_future(ringway.sendfile(one, file, 5))
            received = b""
            while len(received) < large.stat().st_size - 5:
                received += await loop.sock_recv(two, 1 << 20)
            assert await sending == len(received)
            assert received == large.read_bytes()[5:]
            one.setblocking(True)
            with pytest.raises(ValueError, match="non-blocking"):
                await ringway.sendfile(one, file)


def certify(directory: Path) -> None:
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key "
        "-out cert".split(),
        cwd=directory,
        check=True,
        capture_output=True,
    )


def contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert", directory / "key")
    checked = ssl.create_default_context(cafile=directory / "cert")
    checked.check_hostname = False
    return context, checked


async def test_tls(large: Path, tmp_path: Path) -> None:
    certify(tmp_path)

    async def send(writer: asyncio.StreamWriter) -> None:
        async with ringway.open(large, "rb") as file:
            await ringway.sendfile(writer.transport, file)

    assert await exchange(send, tmp_path) == large.read_bytes()


async def test_tls_leaves_the_protocol_as_it_was(large: Path, tmp_path: Path) -> None:
    """A TLS transport of asyncio with a limit of 0 pauses its protocol although nothing waits."""
    certify(tmp_path)
    ended: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    class Server(asyncio.Protocol):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def pause_writing(self) -> None:
            self.calls.append("pause")

        def resume_writing(self) -> None:
            self.calls.append("resume")

        def connection_made(self, transport: Any) -> None:
            self.sending = asyncio.ensure_future(self.send(transport))

        async def send(self, transport: Any) -> None:
            async with ringway.open(large, "rb") as file:
                for count in (1, 5 << 20, 7):
                    await ringway.sendfile(transport, file, 0, count)
                    assert transport.get_protocol() is self
            while transport.get_write_buffer_size():
                await asyncio.sleep(0.01)
            ended.set_result(self.calls)
            transport.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    checked = ssl.create_default_context(cafile=tmp_path / "cert")
    checked.check_hostname = False
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=checked)
    assert len(await reader.read()) == 8 + (5 << 20)
    calls = await ended
    assert calls.count("pause") == calls.count("resume"), calls
    writer.close()
    server.close()
    await server.wait_closed()


async def test_the_loop_goes_on(large: Path) -> None:
    """`loop.sendfile` of asyncio stops it while the file is read."""
    gaps, done = [], False

    async def tick() -> None:
        last = time.monotonic()
        while not done:
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    async def send(writer: asyncio.StreamWriter) -> None:
        drop_cache(large)
        async with ringway.open(large, "rb") as file:
            await ringway.sendfile(writer.transport, file)

    ticking = asyncio.ensure_future(tick())
    assert await exchange(send) == large.read_bytes()
    done = True
    await ticking
    # Blocked for the whole transfer, the loop would have run this once or twice.
    assert len(gaps) > 2


async def test_a_client_that_leaves(large: Path) -> None:
    result: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with ringway.open(large, "rb") as file:
            try:
                for _ in range(100):
                    await ringway.sendfile(writer.transport, file)
            except OSError as error:
                result.set_result(error)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await reader.readexactly(10)
    writer.transport.abort()
    assert isinstance(await asyncio.wait_for(result, 20), OSError)
    server.close()
    await server.wait_closed()


async def test_a_connection_lost_during_a_read_is_not_logged(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protocol is paused, and nobody waits until it is resumed."""
    loop = asyncio.get_running_loop()
    logged: list[object] = []
    loop.set_exception_handler(lambda _, context: logged.append(context))
    one, two = socket.socketpair()
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=one)
    transport.write(bytes(4 << 20))

    async def run(started: Any) -> Any:
        transport.abort()
        await asyncio.sleep(0.02)
        return await engine_run(started)

    engine_run = _sendfile.run
    monkeypatch.setattr(_sendfile, "run", run)
    with two:
        async with ringway.open(large, "rb") as file:
            with pytest.raises(ConnectionError):
                await ringway.sendfile(transport, file)
    gc.collect()
    assert logged == []


ENDS = ["aborted", "closed", "aborts", "reset", "is reset"]


@pytest.mark.parametrize(
    ("kind", "how", "secure"),
    [
        *product(["transport", "writer"], ENDS, [False, True]),
        ("socket", "reset", False),
        ("socket", "is reset", False),
    ],
)
async def test_a_lost_connection_is_a_connection_error(
    large: Path, tmp_path: Path, kind: str, how: str, secure: bool
) -> None:
    """On every loop, whoever ends it, before the transfer or meanwhile."""
    if kind == "socket":
        ours, client = socket.socketpair()
        ours.setblocking(False)
        with ours:
            async with ringway.open(large, "rb") as file:
                if how == "reset":
                    client.close()
                else:
                    asyncio.get_running_loop().call_later(0.05, client.close)
                with pytest.raises(ConnectionError):
                    await ringway.sendfile(ours, file)
        return
    result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    is_reset = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target: Any = writer.transport if kind == "transport" else writer
        loop = asyncio.get_running_loop()
        if how == "aborted":
            writer.transport.abort()
            await asyncio.sleep(0.02)
        elif how == "closed":
            writer.close()
            # (They are one class since 3.11.)
            with suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 0.5)
        elif how == "aborts":
            loop.call_later(0.05, writer.transport.abort)
        elif how == "reset":
            await is_reset.wait()
            await asyncio.sleep(0.02)
        try:
            async with ringway.open(large, "rb") as file:
                for _ in range(20):
                    await ringway.sendfile(target, file)
            result.set_result(None)
        except Exception as error:
            result.set_result(error)
        writer.transport.abort()

    context = checked = None
    if secure:
        certify(tmp_path)
        context, checked = contexts(tmp_path)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    if checked is not None:
        client = await asyncio.to_thread(checked.wrap_socket, client)
    if how == "is reset":
        await asyncio.sleep(0.1)
    if how in ("reset", "is reset"):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        is_reset.set()
    error = await asyncio.wait_for(result, 20)
    assert isinstance(error, ConnectionError), repr(error)
    client.close()
    server.close()
    await server.wait_closed()


async def test_a_cancelled_transfer_gives_the_protocol_back(large: Path) -> None:
    started = asyncio.Event()
    released: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = writer.transport.get_protocol()
        async with ringway.open(large, "rb") as file:
            task = asyncio.ensure_future(
                asyncio.gather(ringway.sendfile(writer.transport, file, 0, 5 << 20))
            )
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        released.set_result(writer.transport.get_protocol() is protocol)
        writer.transport.abort()
        started.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    assert await asyncio.wait_for(released, 20)
    await started.wait()
    client.close()
    server.close()
    await server.wait_closed()


async def test_bad_arguments(large: Path) -> None:
    async with ringway.open(large, "rb") as file, ringway.open(large) as text:
        one, two = socket.socketpair()
        one.setblocking(False)
        with one, two:
            for arguments, error in (
                ((one, file, -1), ValueError),
                ((one, file, 0, -1), ValueError),
                ((one, text), TypeError),
                ((7, file), TypeError),
            ):
                with pytest.raises(error, match="sendfile: "):
                    await ringway.sendfile(*arguments)  # type: ignore[arg-type]


async def test_a_protocol_that_was_paused_is_resumed(large: Path) -> None:
    """Between the two limits nobody can see from the buffer that the protocol waits."""

    class Protocol(asyncio.Protocol):
        paused = False

        def pause_writing(self) -> None:
            assert not self.paused
            self.paused = True

        def resume_writing(self) -> None:
            assert self.paused
            self.paused = False

    loop = asyncio.get_running_loop()
    for was_paused in (True, False):
        one, two = socket.socketpair()
        two.setblocking(False)
        transport, protocol = await loop.create_unix_connection(Protocol, sock=one)
        transport.set_write_buffer_limits(high=400_000, low=100)
        count = 10 if was_paused else 5
        for _ in range(count):
            transport.write(bytes(100_000))
        received = 0
        while transport.get_write_buffer_size() > 300_000:
            received += len(await loop.sock_recv(two, 20_000))
        assert transport.get_write_buffer_size() > 100 and protocol.paused == was_paused
        limits = transport.get_write_buffer_limits()
        async with ringway.open(large, "rb") as file:
            sending = asyncio.ensure_future(ringway.sendfile(transport, file, 0, 1 << 20))
            while received < count * 100_000 + (1 << 20):
                received += len(await loop.sock_recv(two, 1 << 20))
            assert await sending == 1 << 20
        assert transport.get_protocol() is protocol
        assert transport.get_write_buffer_limits() == limits
        for _ in range(100):
            if not protocol.paused:
                break
            await asyncio.sleep(0.01)
        assert not protocol.paused
        transport.close()
        two.close()


async def test_a_pipe_is_a_target(large: Path) -> None:
    """A transport that only writes does not tell whether it reads."""
    reader_fd, writer_fd = os.pipe()
    loop = asyncio.get_running_loop()
    received = asyncio.ensure_future(asyncio.to_thread(drain, reader_fd))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.Protocol, os.fdopen(writer_fd, "wb", 0)
    )
    async with ringway.open(large, "rb") as file:
        assert await ringway.sendfile(transport, file, 3) == large.stat().st_size - 3
    assert transport.get_protocol() is protocol
    transport.close()
    assert await received == large.read_bytes()[3:]


def drain(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


async def test_a_temporary_file_with_a_name_is_a_source(large: Path) -> None:
    async def send(writer: asyncio.StreamWriter) -> None:
        async with ringway.tempfile.NamedTemporaryFile("wb+") as file:
            await file.write(b"content")
            await file.flush()
            assert await ringway.sendfile(writer.transport, file) == 7
        async with ringway.tempfile.NamedTemporaryFile("w+") as text:
            with pytest.raises(TypeError, match="binary"):
                await ringway.sendfile(writer.transport, text)

    assert await exchange(send) == b"content"


async def test_a_transport_that_fails_at_once_keeps_its_protocol(large: Path) -> None:
    class Transport(asyncio.Transport):
        protocol: Any = object()
        reads = True

        def get_protocol(self) -> Any:
            return self.protocol

        def set_protocol(self, protocol: Any) -> None:
            self.protocol = protocol

        def is_closing(self) -> bool:
            return False

        def is_reading(self) -> bool:
            return self.reads

        def pause_reading(self) -> None:
            self.reads = False

        def resume_reading(self) -> None:
            self.reads = True

        def get_write_buffer_limits(self) -> tuple[int, int]:
            raise OSError("no limits")

    transport = Transport()
    before = transport.protocol
    async with ringway.open(large, "rb") as file:
        with pytest.raises(OSError, match="no limits"):
            await ringway.sendfile(transport, file)
    assert transport.protocol is before and transport.reads
