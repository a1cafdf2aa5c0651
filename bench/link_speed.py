"""Measures a link between two network namespaces: link_speed.py SPACE SPACE ADDRESS BYTES

Both ends send so many bytes to each other at the same time, as two ranks do; ADDRESS is that of the first. Prints the
MB/s in each direction, the median of five rounds on one connection.
"""

import ctypes
import os
import socket
import statistics
import sys
import threading
import time

CLONE_NEWNET = 0x40000000
PORT, ROUNDS = 17000, 5


def enter(space):
    with open(f"/run/netns/{space}") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {space}")


def rounds(connection, size):
    """Returns the seconds of each round, in which `size` bytes are sent and received."""
    data, seconds = bytes(size), []
    for _ in range(ROUNDS):
        began, left = time.monotonic(), size
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        while left:
            left -= len(connection.recv(min(left, 1 << 20)))
        sender.join()
        seconds.append(time.monotonic() - began)
    return seconds


def main():
    first, second, address, size = sys.argv[1:]
    ready, told = os.pipe()
    if os.fork() == 0:
        os.read(ready, 1)
        enter(second)
        rounds(socket.create_connection((address, PORT)), int(size))
        os._exit(0)
    enter(first)
    with socket.create_server((address, PORT)) as server:
        os.write(told, b"1")
        seconds = rounds(server.accept()[0], int(size))
    os.wait()
    print(f"{int(size) / statistics.median(seconds) / 1e6:.2f}")


main()
