"""`file:` URLs: local files, copied in a thread."""

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
    def __init__(self, context: TransportContext) -> None:
        self._files = context.files

    async def fetch(self, source: FileSource, span: ByteRange, sink: ByteSink) -> None:
        await run_to_completion(_copy, self._files, source.path, span, sink.writer)

    def copy(self, source: FileSource, span: ByteRange, writer: ByteWriter) -> None:
        _copy(self._files, source.path, span, writer)

    async def send(self, upload: FileUpload, target: FileSource) -> None:
        await run_to_completion(_put, upload, Path(target.path))

    async def remove(self, target: FileSource) -> None:
        try:
            await asyncio.to_thread(Path(target.path).unlink, missing_ok=True)
        except OSError as error:
            raise SourceUnavailable(f"{target.path} not removed: {error.strerror}") from error

    async def close(self) -> None:
        return


def _copy(files: FileRule, path: str, span: ByteRange, writer: ByteWriter) -> None:
    fd = files.open(path)
    try:
        size = os.fstat(fd).st_size
        left = span.length
        most = min(CHUNK, size + 1)  # a large buffer costs more than copying a small file
        if span.offset:
            os.lseek(fd, span.offset, os.SEEK_SET)
        while left is None or left > 0:
            chunk = os.read(fd, most if left is None else min(most, left))
            if not chunk:
                break
            writer.write(chunk)
            left = None if left is None else left - len(chunk)
            if len(chunk) == size:
                break
    finally:
        os.close(fd)
    if left:
        raise WrongSize(f"{path} is {left} bytes shorter than announced")


def _put(upload: FileUpload, target: Path) -> None:
    temporary = target.with_name(target.name + (upload.inflight or ".tmp"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileRangeReader(upload) as file_range, temporary.open("wb") as file:
            while piece := file_range.read():
                file.write(piece)
        if upload.mode is not None:
            temporary.chmod(upload.mode & 0o777)
        if upload.mtime is not None:
            os.utime(temporary, ns=(upload.mtime, upload.mtime))
        temporary.rename(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise explain(str(target), error) from error
