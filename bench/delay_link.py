"""A link with a delay between two network namespaces: delay_link.py SPACE SPACE DEVICE MILLISECONDS

Each namespace gets a TUN device of this name. What is sent into one comes out of the other after the delay, in order.
Ends when it is killed.
"""

import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 9000


def tun(space, name):
    """Opens a TUN device in a namespace. The file works from any other."""
    with open(f"/run/netns/{space}") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {space}")
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    os.system(f"ip link set {name} mtu {MTU} txqueuelen 10000")
    return fd


def main():
    first, second, name, delay = sys.argv[1:]
    delay = float(delay) / 1000
    ends = [tun(first, name), tun(second, name)]
    under_way = [collections.deque(), collections.deque()]  # towards each end: (when it arrives, packet)
    while True:
        due = min((q[0][0] for q in under_way if q), default=None)
        timeout = None if due is None else max(0, due - time.monotonic())
        for fd in select.select(ends, [], [], timeout)[0]:
            try:
                while True:
                    packet = os.read(fd, MTU + 100)
                    under_way[1 - ends.index(fd)].append((time.monotonic() + delay, packet))
            except BlockingIOError:
                pass
        for fd, queue in zip(ends, under_way):
            while queue and queue[0][0] <= time.monotonic():
                try:
                    os.write(fd, queue.popleft()[1])
                except OSError:  # the device is down, and the packet is lost
                    pass


main()
