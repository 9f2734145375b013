"""A file that is sent, or a stretch of it, piece by piece. Blocking."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from penstock.core.units import MiB
from penstock.pump.errors import SourceMissing
from penstock.pump.transports.contract import Span

PIECE: Final = MiB


class Stretch:
    def __init__(self, path: Path, span: Span) -> None:
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise SourceMissing(f"{path}: {error.strerror}") from error
        there = max(0, os.fstat(self._file.fileno()).st_size - span.offset)
        self.size = there if span.length is None else min(there, span.length)
        self._left = self.size
        self._file.seek(span.offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(self) -> bytes:
        """The next piece; nothing at the end."""
        piece = self._file.read(min(PIECE, self._left))
        self._left -= len(piece)
        return piece
