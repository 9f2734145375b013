"""Load on one worker: keep-alive connections that ask again as soon as they are answered.

`python -m benchmarks.hives.load PORT CONNECTIONS SECONDS` in a process of its own, so that its time
is not the server's; it prints how many were answered, and how long answers took.
"""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from itertools import count
from time import perf_counter
from typing import cast

from benchmarks.hives.applications import HIVES
from penstock_hives.server.worker import loop_factory


class Asking(asyncio.Protocol):
    """One connection. Every answer is read whole and checked for its status and its length."""

    def __init__(self, first: int, took: array[float]) -> None:
        self._hives = count(first)
        self._took = took
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its ways only
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, end, body = self._heard.partition(b"\r\n\r\n")
        if not end:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise AssertionError(head.decode())
        at = head.index(b"content-length: ") + 16
        if len(body) < int(head[at : at + 8].partition(b"\r")[0]):
            return
        self._took.append(perf_counter() - self._since)
        self._heard = b""
        self._ask()

    def _ask(self) -> None:
        self._since = perf_counter()
        hive = next(self._hives) % HIVES + 1
        self._transport.write(b"GET /v1/hives/%d HTTP/1.1\r\nHost: hives\r\n\r\n" % hive)


async def ask(port: int, connections: int, seconds: float) -> dict[str, float]:
    took: array[float] = array("d")
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda n=n: Asking(n * 37, took), "127.0.0.1", port)  # type: ignore[misc]
        for n in range(connections)
    ]
    await asyncio.sleep(seconds)
    answered = sorted(took)
    for transport, _ in made:
        transport.close()
    return {
        "requests": len(answered),
        "seconds": seconds,
        "p50": answered[len(answered) // 2],
        "p99": answered[len(answered) * 99 // 100],
    }


def main(port: str, connections: str, seconds: str) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(json.dumps(runner.run(ask(int(port), int(connections), float(seconds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
