"""Places and numbers in a block of bytes, for thousands of messages at once.

What is read in bulk is looked at with NumPy: where a pattern stands, and the big-endian numbers at
given places. Bytes in, arrays out; that the places lie inside the block is the caller's to see to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class ByteArray:
    """A block of bytes with a number of every width beginning at every place."""

    __slots__ = ("data", "i64", "size", "u8", "u16", "u32")

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.size = len(data)
        self.u8 = self._numbers(">u1", 1)
        self.u16 = self._numbers(">u2", 2)
        self.u32 = self._numbers(">u4", 4)
        self.i64 = self._numbers(">i8", 8)

    def find(self, pattern: bytes) -> Indices:
        """Where the pattern stands. It must not overlap itself."""
        pieces = self.data.split(pattern)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))[:-1]
        return np.cumsum(lengths + len(pattern)) - len(pattern)

    def _numbers(self, kind: str, width: int) -> NDArray[Any]:
        """They overlap: one begins at every byte."""
        count = max(self.size - width + 1, 0)
        return np.ndarray((count,), kind, self.data if count else b"", strides=(1,))
