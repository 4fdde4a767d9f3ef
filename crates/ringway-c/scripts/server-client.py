#!/usr/bin/env python3
"""server-client.py SOCKET FOLDER: asks the example's server for parts of files in FOLDER, as many clients at once, and checks the answers.

Some clients go away in the middle; some ask for what they may not have."""

import errno
import os
import random
import socket
import sys
import time

path, folder = sys.argv[1:]


def connect():
    """A client, as soon as the server is there."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    for attempt in range(1000):
        try:
            client.connect(path)
            return client
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
    sys.exit("no server")


def ask(client, offset, length, name):
    client.sendall(f"{offset} {length} {name}\n".encode())


def answer(client):
    """The bytes, or the errno."""
    stream = client.makefile("rb")
    result = int(stream.readline())
    if result < 0:
        return -result
    data = stream.read(result)
    assert len(data) == result, f"{len(data)} bytes of {result}"
    return data


with open(os.path.join(folder, "data"), "rb") as file:
    data = file.read()
random.seed(1)
clients = [connect() for _ in range(50)]
for turn in range(10):
    ranges = [(random.randrange(len(data) + 1000), random.choice((0, 1, 4096, 100_000, 1 << 20))) for _ in clients]
    for client, (offset, length) in zip(clients, ranges):
        ask(client, offset, length, "data")
    # Some ask and do not wait for the answer.
    for _ in range(5):
        hasty = connect()
        ask(hasty, 0, 1 << 20, "data")
        hasty.close()
    for client, (offset, length) in random.sample(list(zip(clients, ranges)), len(clients)):
        assert answer(client) == data[offset : offset + length], f"{offset} {length}: other bytes"

one = clients[0]
for request, wanted in (
    ((0, 10, "missing"), errno.ENOENT),
    ((0, 10, "../" + os.path.basename(folder) + "/data"), errno.EXDEV),
    ((0, 10, "/etc/passwd"), errno.EXDEV),
    ((0, 10, "."), errno.EISDIR),
    ((0, 1 << 30, "data"), errno.EINVAL),
    ((1 << 63, 10, "data"), errno.EINVAL),
):
    ask(one, *request)
    found = answer(one)
    assert found == wanted, f"{request}: {found}, not {wanted}"
one.sendall(b"nonsense\n")
assert answer(one) == errno.EINVAL
# A request may come in pieces.
one.sendall(b"1 ")
time.sleep(0.02)
one.sendall(b"2 data\n")
assert answer(one) == data[1:3]
