"""Status reports to systemd, as `sd_notify` sends them. Without systemd they do nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator


def notify(state: str) -> None:
    """Send lines such as `READY=1` to the socket that the service manager named."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),  # the service runs without its manager, too
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.connect(address)
        sock.sendall(state.encode())


def watchdog_seconds() -> float | None:
    """The interval in which the manager expects a sign of life from this process."""
    try:
        microseconds = int(os.environ.get("WATCHDOG_USEC", ""))
        pid = int(os.environ.get("WATCHDOG_PID", os.getpid()))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 and pid == os.getpid() else None


@contextlib.asynccontextmanager
async def ready(status: str) -> AsyncIterator[None]:
    """Report that the service is ready, then the signs of life of its event loop, then its end."""
    notify(f"READY=1\nSTATUS={status}")
    interval = watchdog_seconds()
    task = None if interval is None else asyncio.create_task(_watchdog(interval / 2))
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
        notify("STOPPING=1\nSTATUS=stopping")


async def _watchdog(interval: float) -> None:
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval)
