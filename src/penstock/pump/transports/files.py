"""`file:` URLs: files of this machine, copied in one go in a thread."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.core.units import MiB
from penstock.pump.errors import SourceUnavailable, WrongSize
from penstock.pump.sources import Source
from penstock.pump.threads import to_the_end
from penstock.pump.transports.contract import Circumstances, Delivery, Sink, Span, Writing
from penstock.pump.transports.file_rule import FileRule, explain
from penstock.pump.transports.stretch import Stretch

CHUNK: Final = MiB


class Files:
    """Keeps `Transport`, and `Near`."""

    def __init__(self, circumstances: Circumstances) -> None:
        self._files = circumstances.files

    async def fetch(self, source: Source, span: Span, sink: Sink) -> None:
        await to_the_end(_copy, self._files, source.path, span, sink.writing)

    def copy(self, source: Source, span: Span, writing: Writing) -> None:
        _copy(self._files, source.path, span, writing)

    async def send(self, delivery: Delivery, target: Source) -> None:
        await to_the_end(_put, delivery, Path(target.path))

    async def remove(self, target: Source) -> None:
        try:
            await asyncio.to_thread(Path(target.path).unlink, missing_ok=True)
        except OSError as error:
            raise SourceUnavailable(f"{target.path} stays: {error.strerror}") from error

    async def close(self) -> None:
        return


def _copy(files: FileRule, path: str, span: Span, writing: Writing) -> None:
    fd = files.open(path)
    try:
        there = os.fstat(fd)
        left = span.length
        most = min(CHUNK, there.st_size + 1)  # room that is not needed costs more than a small file
        if span.offset:
            os.lseek(fd, span.offset, os.SEEK_SET)
        while left is None or left > 0:
            chunk = os.read(fd, most if left is None else min(most, left))
            if not chunk:
                break
            writing.write(chunk)
            left = None if left is None else left - len(chunk)
            if len(chunk) == there.st_size:
                break  # all of it in one piece
    finally:
        os.close(fd)
    if left:
        raise WrongSize(f"{path} has {left} bytes less than announced")


def _put(delivery: Delivery, target: Path) -> None:
    draft = target.with_name(target.name + (delivery.inflight or ".tmp"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with Stretch(delivery) as stretch, draft.open("wb") as file:
            while piece := stretch.read():
                file.write(piece)
        if delivery.mode is not None:
            draft.chmod(delivery.mode & 0o777)
        if delivery.mtime is not None:
            os.utime(draft, ns=(delivery.mtime, delivery.mtime))
        draft.rename(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise explain(str(target), error) from error
