"""Open streams on one worker: what each costs in memory, and in time while figures flow."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass

from benchmarks.hives.engines import engine
from benchmarks.usage import usage_of

_REQUEST = b"GET /v1/live HTTP/1.1\r\nHost: hives\r\nAccept: text/event-stream\r\n\r\n"


@dataclass(frozen=True, slots=True)
class StreamFigures:
    streams: int
    before_bytes: int  #: of a worker that serves nobody
    bytes: int
    cpu_seconds: float  #: in each second
    events: float  #: to each stream, in each second


async def measure(streams: int, seconds: float, changes: float = 2.0) -> StreamFigures:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * streams + 500)), hard))
    async with engine("streams", changes=changes) as running:
        before = usage_of([running.worker]).rss_bytes
        heard = [0] * streams
        opened = [asyncio.Event() for _ in range(streams)]
        readers = []
        for n in range(streams):
            readers.append(asyncio.create_task(_read(running.port, heard, n, opened[n])))
            if n % 100 == 99:
                await opened[n].wait()
        await asyncio.gather(*(each.wait() for each in opened))
        start, had = usage_of([running.worker]), sum(heard)
        await asyncio.sleep(seconds)
        end = usage_of([running.worker])
        events = (sum(heard) - had) / streams / seconds
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
    spent = (end.cpu_seconds - start.cpu_seconds) / seconds
    return StreamFigures(streams, before, end.rss_bytes, spent, events)


async def _read(port: int, heard: list[int], n: int, opened: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=256 * 1024)
    try:
        writer.write(_REQUEST)
        while True:
            data = await reader.read(65536)
            assert data, "the stream has ended"
            count = data.count(b"event: figures")
            heard[n] += count
            if count:
                opened.set()
    finally:
        writer.close()
