"""A process that appends until it is killed, and says what is safe.

    python appender.py DIRECTORY

It prints the offset below which everything is synced, and the acknowledgements that were written,
each in a line of its own: `synced N`, `acked N`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from penstock.broker.contract import Message
from penstock.broker.log import AckFile, Committer, Log


def body(offset: int) -> bytes:
    return (b"%d." % offset) * (1 + offset % 50)


def say(text: str) -> None:
    os.write(1, text.encode())  # at once, whatever becomes of this process


async def run(directory: Path) -> None:
    committer = Committer(
        asyncio.get_running_loop(), on_fault=lambda e: sys.exit(str(e)), on_recovered=lambda: None
    )
    log = Log(directory / "log", committer, segment_bytes=200_000)
    acks = AckFile(directory / "acks", committer)
    acks.truncate(log.next_offset)
    room = asyncio.Semaphore(20)

    def synced(end: int) -> None:
        room.release()
        assert log.synced_offset >= end
        say(f"synced {end}\n")

    while True:
        for _ in range(1 + log.next_offset % 37):
            offset = log.next_offset
            log.append(Message(b"\x00\x01q", b"header", body(offset), 1))
        await room.acquire()
        committer.after(lambda end=log.next_offset: synced(end))  # type: ignore[misc]
        committer.write()
        done = acks.floor
        if done < log.synced_offset:
            acks.add(done)
            committer.write()
            say(f"acked {done}\n")
        await asyncio.sleep(0)  # let the committer tell


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
