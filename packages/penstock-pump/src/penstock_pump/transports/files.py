"""`file:` URLs: files of this machine, copied in one go in a thread."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.core.units import MiB
from penstock_pump.errors import SourceUnavailable, WrongSize
from penstock_pump.thread_pool import run_to_completion
from penstock_pump.transports.access import FileRule, explain
from penstock_pump.transports.transport import (
    ByteRange,
    ByteSink,
    ByteWriter,
    FileRangeReader,
    FileSource,
    FileUpload,
    TransportContext,
)

CHUNK: Final = MiB


class FileTransport:
    """Keeps `Transport`, and `Near`."""

    def __init__(self, transport_context: TransportContext) -> None:
        self._files = transport_context.files

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        await run_to_completion(_copy, self._files, source.path, span, sink.writing)

    def copy(self, source: FileSource, span: ByteRange, writing: ByteWriter) -> None:
        _copy(self._files, source.path, span, writing)

    async def send(self, delivery: FileUpload, target: FileSource) -> None:
        await run_to_completion(_put, delivery, Path(target.path))

    async def remove(self, target: FileSource) -> None:
        try:
            await asyncio.to_thread(Path(target.path).unlink, missing_ok=True)
        except OSError as error:
            raise SourceUnavailable(f"{target.path} stays: {error.strerror}") from error

    async def close(self) -> None:
        return


def _copy(files: FileRule, path: str, span: ByteRange, writing: ByteWriter) -> None:
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


def _put(delivery: FileUpload, target: Path) -> None:
    draft = target.with_name(target.name + (delivery.inflight or ".tmp"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileRangeReader(delivery) as file_range, draft.open("wb") as file:
            while piece := file_range.read():
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
