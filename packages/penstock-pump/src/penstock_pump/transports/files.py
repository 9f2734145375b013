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
from penstock_pump.transports.listing import ListedFile
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
    can_write_blocks = True

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

    async def list(self, source: FileSource) -> list[ListedFile]:
        return await run_to_completion(_list, source.path)

    async def make_link(self, target: FileSource, link: str) -> None:
        await run_to_completion(_link, Path(target.path), link)

    async def make_directory(self, target: FileSource, mode: int | None) -> None:
        await run_to_completion(_make_directory, Path(target.path), mode)

    async def remove_directory(self, target: FileSource) -> None:
        await run_to_completion(_remove_directory, Path(target.path))

    async def write_block(self, upload: FileUpload, temporary: FileSource, offset: int) -> None:
        await run_to_completion(_write_block, upload, Path(temporary.path), offset)

    async def finish_file(
        self, upload: FileUpload, temporary: FileSource, target: FileSource
    ) -> None:
        await run_to_completion(_finish, upload, Path(temporary.path), Path(target.path))

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
        _finish(upload, temporary, target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise explain(str(target), error) from error


def _list(path: str) -> list[ListedFile]:
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                found.append(
                    ListedFile(
                        entry.name,
                        entry.is_dir(follow_symlinks=False),
                        status.st_size,
                        status.st_mtime_ns,
                    )
                )
    except OSError as error:
        raise explain(path, error) from error
    return found


def _finish(upload: FileUpload, temporary: Path, target: Path) -> None:
    """A file that was finished before, by an attempt that was not acknowledged, is left alone."""
    if not temporary.exists() and target.exists():
        return
    try:
        if upload.mode is not None:
            temporary.chmod(upload.mode & 0o777)
        if upload.mtime is not None:
            os.utime(temporary, ns=(upload.mtime, upload.mtime))
        temporary.rename(target)
    except OSError as error:
        raise explain(str(target), error) from error


def _write_block(upload: FileUpload, temporary: Path, offset: int) -> None:
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with FileRangeReader(upload) as file_range:
                while piece := file_range.read():
                    offset += os.pwrite(fd, piece, offset)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(str(temporary), error) from error


def _link(target: Path, link: str) -> None:
    temporary = target.with_name(f".{target.name}.link")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(link)
        temporary.rename(target)
    except OSError as error:
        raise explain(str(target), error) from error


def _make_directory(target: Path, mode: int | None) -> None:
    try:
        target.mkdir(mode=0o775 if mode is None else mode, parents=True, exist_ok=True)
    except OSError as error:
        raise explain(str(target), error) from error


def _remove_directory(target: Path) -> None:
    try:
        target.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(str(target), error) from error
