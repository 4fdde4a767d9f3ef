#!/usr/bin/env bash
# Expected: uvloop is a drop-in replacement of asyncio's event loop. loop.sendfile(transport, file)
# and loop.sock_sendfile(sock, file) work on it, by sendfile(2) or, as their parameter
# fallback=True promises, by reading and sending.
#
# Found (uvloop 0.23.0, Python 3.11): both raise NotImplementedError, with fallback=True too, for a
# plain TCP transport and a socket. On asyncio's own loop the same calls send the file. A program
# that serves files breaks when uvloop is installed, at the first file.
#
# Why: uvloop's Loop inherits from AbstractEventLoop, whose methods raise this; the fall-back is
# asyncio's BaseEventLoop's. (Source: uvloop/loop.pyx, which does not define the two.)
#
# Needs Python 3 with venv.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check uvloop==0.23.0
head -c 65536 /dev/urandom >file
cat >send.py <<'SEND'
import asyncio, socket, sys
import uvloop
async def attempt(send):
    with open("file", "rb") as file:
        try:
            return await send(file)
        except NotImplementedError:
            return "NotImplementedError"
async def attempts():
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    left.setblocking(False)
    found = [await attempt(lambda f: loop.sock_sendfile(left, f, 0, 4096, fallback=True))]
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    found.append(await attempt(lambda f: loop.sendfile(writer.transport, f, 0, 4096)))
    left.close(), right.close(), writer.close(), server.close()
    return found
own, other = asyncio.run(attempts()), uvloop.run(attempts())
print(f"  asyncio's loop: {own}\n  uvloop: {other}")
sys.exit((own, other) != ([4096] * 2, ["NotImplementedError"] * 2))
SEND
echo "Bytes sent by loop.sock_sendfile and loop.sendfile:"
venv/bin/python send.py || { echo "not as found" >&2; exit 1; }
