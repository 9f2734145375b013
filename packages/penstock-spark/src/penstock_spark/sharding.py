"""Shards of the message key: which messages are processed together.

A shard is a stable hash of the key modulo the number of shards of bronze. The key is the routing
key, or its first words: all topics of a sensor (`sensors.s1.report`, `sensors/s1/status`) have the
same first two. Hashes are computed for whole columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DEFAULT_SHARDS: Final = 16
MAX_SHARDS: Final = 4096
_DOT, _SLASH = 46, 47
#: An odd number, so that it has an inverse modulo 2**32.
_BASE: Final = 0x9E3779B1
_MIX: Final = np.uint32(0x85EBCA6B)


@dataclass(frozen=True, slots=True)
class ShardKey:
    shards: int = DEFAULT_SHARDS
    words: int | None = None  #: of the routing key, separated by dots or slashes; None: all

    def shard_of(self, key: str) -> int:
        return int(self.shards_of(pa.array([key]))[0])

    def shards_of(self, keys: pa.Array) -> NDArray[np.int32]:
        """The shard of each key; a missing one is as an empty one."""
        named = keys.fill_null("").dictionary_encode()
        found = self._hashed(named.dictionary)
        indices: NDArray[np.int32] = np.asarray(named.indices)
        return found[indices]

    def _hashed(self, keys: pa.Array) -> NDArray[np.int32]:
        data, offsets = _buffers(keys)
        if not len(data):
            return np.full(len(keys), self._modulo(np.zeros(1, np.uint32))[0], np.int32)
        data = np.where(data == _SLASH, _DOT, data)
        begin, end = offsets[:-1], offsets[1:]
        if self.words is not None:
            dots = np.append(np.flatnonzero(data == _DOT), np.full(self.words, len(data)))
            nth = np.searchsorted(dots[: len(dots) - self.words], begin) + self.words - 1
            end = np.minimum(end, dots[nth])
        # A polynomial of each key's bytes, as the difference of two sums of one for all bytes.
        powers, inverses = _powers(1 << max(10, (len(data)).bit_length()))
        sums = np.zeros(len(data) + 1, np.uint32)
        np.cumsum((data + 1) * powers[: len(data)], out=sums[1:])
        return self._modulo((sums[end] - sums[begin]) * inverses[begin])

    def _modulo(self, hashes: NDArray[np.uint32]) -> NDArray[np.int32]:
        mixed = (hashes ^ (hashes >> np.uint32(16))) * _MIX
        return ((mixed >> np.uint32(16)) % np.uint32(self.shards)).astype(np.int32)


def _buffers(keys: pa.Array) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """The bytes of all keys, and where each begins; the last entry is the end."""
    _, offsets, data = keys.buffers()
    found = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    if data is None or not len(found):
        return np.zeros(0, np.uint32), np.zeros(len(keys) + 1, np.int64)
    text = np.frombuffer(data, np.uint8)[found[0] : found[-1]]
    return text.astype(np.uint32), (found - found[0]).astype(np.int64)


@lru_cache(maxsize=4)
def _powers(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The powers of the base and of its inverse, modulo 2**32."""
    inverse = pow(_BASE, -1, 1 << 32)
    powers, inverses = np.empty(count, np.uint32), np.empty(count, np.uint32)
    for base, found in ((_BASE, powers), (inverse, inverses)):
        found[0] = 1
        np.multiply.accumulate(np.full(count - 1, base, np.uint32), out=found[1:])
    return powers, inverses
