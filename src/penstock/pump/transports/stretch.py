"""A file that is sent, or a stretch of it, piece by piece. Blocking."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final, Self

from penstock.core.units import MiB
from penstock.pump.transports.contract import Delivery

PIECE: Final = MiB


class Stretch:
    def __init__(self, delivery: Delivery) -> None:
        span = delivery.span
        self._file = os.fdopen(delivery.files.open(str(delivery.path)), "rb")
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

    @property
    def path(self) -> str:
        """Leads to the open file, whatever has its name meanwhile."""
        return f"/proc/self/fd/{self._file.fileno()}"

    def read(self) -> bytes:
        """The next piece; nothing at the end."""
        piece = self._file.read(min(PIECE, self._left))
        self._left -= len(piece)
        return piece
