"""How much CPU the log takes: appending, writing, reading, and handing on as Arrow.

    python benchmarks/log.py [--rows 1000000] [--directory DIR]

CPU time, not wall time, of this process with all its threads; nobody waits for the disk, so the
writing figures are without syncs. The file is warm when it is read.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.broker.contract import Message
from penstock.broker.log import AckFile, Committer, Log
from penstock.broker.log.arrow import record_batches, write_ipc

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class Response(io.RawIOBase):
    """Takes the bytes as a server's response does, a piece at a time, and lets them go."""

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        return len(bytes(data))


def message(i: int, size: int, keys: int) -> Message:
    key = b"sensors.%06d.report" % (i % keys)
    route = b"\x09amq.topic" + bytes((len(key),)) + key
    header = b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x10\x00\x02"
    return Message(route, header, (b"%d" % i).ljust(size, b"."), 1)


def measure(name: str, rows: int, work: Callable[[], float | None]) -> None:
    """`work` may say itself how long it took, without its preparations."""
    start = time.process_time()
    taken = work() or time.process_time() - start
    print(f"{name:<44} {taken / rows * 1e6:7.3f} µs/message  {rows / taken / 1e6:7.2f} M/s")


def run(directory: Path, rows: int, size: int, batch: int, keys: int) -> None:
    loop = asyncio.new_event_loop()
    committer = Committer(loop, on_fault=print, on_recovered=lambda: None)
    log = Log(directory / "log", committer)

    def append() -> float:
        taken = 0.0
        for _ in range(rows // batch):
            messages = [message(i, size, keys) for i in range(batch)]  # fresh, as from a socket
            start = time.process_time()
            for one in messages:
                log.append(one)
            committer.write()
            taken += time.process_time() - start
        return taken

    def read() -> None:
        for chunk in log.chunks(0, rows):
            chunk.messages()

    def hand_on() -> None:
        write_ipc(record_batches(log, 0, rows), Response())

    acks = AckFile(directory / "acks", committer)

    def acknowledge() -> None:
        for start in range(0, rows, batch):
            for offset in range(start, start + batch):
                acks.add(offset)
            committer.write()

    what = f"{size} B, {batch} a chunk, {keys} keys:"
    measure(f"{what} append, write", rows, append)
    measure(f"{what} read", rows, read)
    measure(f"{what} Arrow IPC", rows, hand_on)
    measure(f"{what} acknowledge", rows, acknowledge)
    log.close()
    acks.close()
    loop.run_until_complete(committer.close())
    loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, help="where to write; a temporary one if none")
    options = parser.parse_args()
    for size, batch, keys in ((16, 100, 1), (59, 100, 1), (59, 100, 100), (59, 1000, 1000)):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            run(Path(directory), options.rows, size, batch, keys)


if __name__ == "__main__":
    main()
