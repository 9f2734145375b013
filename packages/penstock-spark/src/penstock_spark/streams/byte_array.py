"""A block of bytes as NumPy arrays, to parse thousands of messages at once.

The caller ensures that positions are inside the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class ByteArray:
    """Big-endian numbers of every width, beginning at every byte."""

    __slots__ = ("data", "i64", "size", "u8", "u16", "u32")

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.size = len(data)
        self.u8 = self._numbers(">u1", 1)
        self.u16 = self._numbers(">u2", 2)
        self.u32 = self._numbers(">u4", 4)
        self.i64 = self._numbers(">i8", 8)

    def find(self, pattern: bytes) -> Indices:
        """The positions of a pattern that does not overlap itself."""
        pieces = self.data.split(pattern)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))[:-1]
        return np.cumsum(lengths + len(pattern)) - len(pattern)

    def _numbers(self, kind: str, width: int) -> NDArray[Any]:
        count = max(self.size - width + 1, 0)
        return np.ndarray((count,), kind, self.data if count else b"", strides=(1,))
