"""A column of bodies as NumPy sees it: the first bytes of every row as a matrix.

Bodies have any length and lie end to end in one buffer. A row that is too short for the matrix is
filled with whatever bytes are at hand, so that rows never shift; `lengths` tells whose bytes are
their own, and the decoder gives the others a reason instead of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
#: What callers may have at hand for "these rows, not those"; None is no row.
Chosen = Any


@dataclass(frozen=True, slots=True)
class Bodies:
    data: Bytes
    starts: Rows
    lengths: Rows  #: -1 where there is no body

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Bodies:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        large = pa.types.is_large_binary(column.type)
        if not (large or pa.types.is_binary(column.type)):
            column = column.cast(pa.binary())
        _, offsets, data = column.buffers()
        held_ends = np.frombuffer(offsets, np.int64 if large else np.int32)
        ends = held_ends[column.offset : column.offset + len(column) + 1].astype(np.int64)
        lengths: Rows = np.diff(ends)
        if column.null_count:
            lengths[np.asarray(column.is_null())] = -1
        held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls(held, ends[:-1], lengths)

    def heads(self, width: int, rows: Rows | None = None) -> Bytes:
        """The first bytes of the rows, all of them unless some are named."""
        data = self.data
        if len(data) < width:
            data = np.zeros(width, np.uint8)
            data[: len(self.data)] = self.data
        starts = self.starts if rows is None else self.starts[rows]
        # Whoever would read beyond the end is too short, and reads anything.
        return sliding_window_view(data, width)[np.minimum(starts, len(data) - width)]

    def __len__(self) -> int:
        return len(self.lengths)


def as_mask(chosen: Chosen, rows: int) -> Mask | None:
    """None unless there is a row to treat differently, which is the common case."""
    if chosen is None:
        return None
    if isinstance(chosen, pa.Array | pa.ChunkedArray):
        chosen = np.asarray(chosen.fill_null(False))
    mask = np.broadcast_to(np.asarray(chosen, bool), rows)
    return mask if mask.any() else None


def fields_in(
    heads: Bytes, layout: Sequence[tuple[str, str]], little: Mask | None
) -> dict[str, NDArray[np.int64]]:
    """The fields of rows of one layout, each row in its own byte order."""
    big = heads.view(np.dtype([(name, f">{kind}") for name, kind in layout])).reshape(-1)
    if little is None:
        return {name: big[name].astype(np.int64) for name, _ in layout}
    other = heads.view(np.dtype([(name, f"<{kind}") for name, kind in layout])).reshape(-1)
    return {
        name: np.where(little, other[name].astype(np.int64), big[name].astype(np.int64))
        for name, _ in layout
    }
