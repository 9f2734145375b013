"""Message bodies as a NumPy matrix, and the column of reject reasons.

Bodies have any length and are contiguous in one buffer. A row that is shorter than the matrix
contains arbitrary bytes; `lengths` says which bytes belong to it, and the decoder sets a reject
reason for the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from penstock_hives.arrays import Bytes, Flags, Numbers
from penstock_hives.sensors.protocol.frame import RejectReason

#: Anything that selects rows: a mask, a column of booleans; None selects none.
RowSelection = Any


@dataclass(frozen=True, slots=True)
class FrameBodies:
    data: Bytes
    starts: Numbers
    lengths: Numbers  #: -1 where there is no body

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> FrameBodies:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        large = pa.types.is_large_binary(column.type)
        if not (large or pa.types.is_binary(column.type)):
            column = column.cast(pa.binary())
        _, offsets, data = column.buffers()
        stored = np.frombuffer(offsets, np.int64 if large else np.int32)
        ends = stored[column.offset : column.offset + len(column) + 1].astype(np.int64)
        lengths: Numbers = np.diff(ends)
        if column.null_count:
            lengths[np.asarray(column.is_null())] = -1
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls(content, ends[:-1], lengths)

    def heads(self, width: int, rows: Numbers | None = None) -> Bytes:
        """The first bytes of these rows, by default of all."""
        data = self.data
        if len(data) < width:
            data = np.zeros(width, np.uint8)
            data[: len(self.data)] = self.data
        starts = self.starts if rows is None else self.starts[rows]
        # A row that would be read beyond the end is too short, and is rejected.
        return sliding_window_view(data, width)[np.minimum(starts, len(data) - width)]

    def __len__(self) -> int:
        return len(self.lengths)


def as_mask(chosen: RowSelection, rows: int) -> Flags | None:
    """None if no row is selected, which is the common case."""
    if chosen is None:
        return None
    if isinstance(chosen, pa.Array | pa.ChunkedArray):
        chosen = np.asarray(chosen.fill_null(False))
    mask = np.broadcast_to(np.asarray(chosen, bool), rows)
    return mask if mask.any() else None


def read_fields(
    heads: Bytes, layout: Sequence[tuple[str, str]], little: Flags | None
) -> dict[str, Numbers]:
    """The fields of rows of one layout, each row in its own byte order."""
    big = heads.view(np.dtype([(name, f">{kind}") for name, kind in layout])).reshape(-1)
    if little is None:
        return {name: big[name].astype(np.int64) for name, _ in layout}
    other = heads.view(np.dtype([(name, f"<{kind}") for name, kind in layout])).reshape(-1)
    return {
        name: np.where(little, other[name].astype(np.int64), big[name].astype(np.int64))
        for name, _ in layout
    }


_NAMES: Final = pa.array([reason.value for reason in RejectReason], pa.string())
_CODE: Final = {reason: code for code, reason in enumerate(RejectReason)}
_NONE: Final = -1


class RejectReasons:
    """The first reason of a row wins."""

    __slots__ = ("_codes",)

    def __init__(self, rows: int) -> None:
        self._codes: NDArray[np.int8] = np.full(rows, _NONE, np.int8)

    @classmethod
    def by_length(cls, bodies: FrameBodies, shortest: int, longest: int) -> RejectReasons:
        reasons = cls(len(bodies))
        reasons.set(RejectReason.NO_BODY, bodies.lengths < 0)
        reasons.set(RejectReason.TOO_SHORT, bodies.lengths < shortest)
        reasons.set(RejectReason.TOO_LONG, bodies.lengths > longest)
        return reasons

    def set(self, reason: RejectReason, bad: Flags) -> None:
        if bad.any():
            self.set_rows(reason, np.flatnonzero(bad))

    def set_rows(self, reason: RejectReason, rows: Numbers) -> None:
        self._codes[rows[self._codes[rows] == _NONE]] = _CODE[reason]

    @property
    def bad(self) -> Flags:
        bad: Flags = self._codes != _NONE
        return bad

    def column(self) -> pa.Array:
        bad = self.bad
        if not bad.any():
            return pa.nulls(len(bad), pa.string())
        return _NAMES.take(pa.array(self._codes, mask=~bad))


def arrow_column(values: NDArray[np.generic], kind: pa.DataType, absent: Flags) -> pa.Array:
    """Values as an Arrow column of this type, null where absent."""
    stored = kind.to_pandas_dtype() if pa.types.is_integer(kind) else np.int64
    wide = np.ascontiguousarray(values, stored)
    validity = None
    if absent.any():
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(kind, len(wide), [validity, pa.py_buffer(wide)])
