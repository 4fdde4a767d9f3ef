#!/usr/bin/env python3
"""Tests the example server with many concurrent clients.

usage: server-client.py SOCKET DIRECTORY

Requests ranges of files in DIRECTORY and checks the replies. Some clients disconnect early; some
send requests that must fail."""

import errno
import os
import random
import socket
import sys
import time

path, directory = sys.argv[1:]


def connect():
    """Connects as soon as the server listens."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    for attempt in range(1000):
        try:
            client.connect(path)
            return client
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
    sys.exit("the server does not listen")


def request(client, offset, length, name):
    client.sendall(f"{offset} {length} {name}\n".encode())


def reply(client):
    """Returns the bytes, or the errno."""
    stream = client.makefile("rb")
    result = int(stream.readline())
    if result < 0:
        return -result
    data = stream.read(result)
    assert len(data) == result, f"{len(data)} bytes of {result}"
    return data


with open(os.path.join(directory, "data"), "rb") as file:
    data = file.read()
random.seed(1)
clients = [connect() for _ in range(50)]
for turn in range(10):
    ranges = [
        (random.randrange(len(data) + 1000), random.choice((0, 1, 4096, 100_000, 1 << 20)))
        for _ in clients
    ]
    for client, (offset, length) in zip(clients, ranges):
        request(client, offset, length, "data")
    # Some send a request and disconnect.
    for _ in range(5):
        hasty = connect()
        request(hasty, 0, 1 << 20, "data")
        hasty.close()
    for client, (offset, length) in random.sample(list(zip(clients, ranges)), len(clients)):
        assert reply(client) == data[offset : offset + length], f"{offset} {length}: wrong bytes"

one = clients[0]
for parameters, wanted in (
    ((0, 10, "missing"), errno.ENOENT),
    ((0, 10, "../" + os.path.basename(directory) + "/data"), errno.EXDEV),
    ((0, 10, "/etc/passwd"), errno.EXDEV),
    ((0, 10, "."), errno.EISDIR),
    ((0, 1 << 30, "data"), errno.EINVAL),
    ((1 << 63, 10, "data"), errno.EINVAL),
    # RINGWAY_CURRENT_POSITION, which is no offset.
    (((1 << 64) - 1, 10, "data"), errno.EINVAL),
    ((-1, 10, "data"), errno.EINVAL),
):
    request(one, *parameters)
    found = reply(one)
    assert found == wanted, f"{parameters}: {found}, not {wanted}"
one.sendall(b"nonsense\n")
assert reply(one) == errno.EINVAL
# A request may arrive in pieces.
one.sendall(b"1 ")
time.sleep(0.02)
one.sendall(b"2 data\n")
assert reply(one) == data[1:3]
