"""The column that says why a row is no message, filled in the order reasons are looked for."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.hives.sensors.columns.bodies import Bodies, Mask, Rows
from penstock.hives.sensors.messages.reason import Reason

_NAMES: Final = pa.array([reason.value for reason in Reason], pa.string())
_CODE: Final = {reason: code for code, reason in enumerate(Reason)}
_NONE: Final = -1


class Reasons:
    """The first reason given to a row stays."""

    __slots__ = ("_codes",)

    def __init__(self, rows: int) -> None:
        self._codes: NDArray[np.int8] = np.full(rows, _NONE, np.int8)

    @classmethod
    def by_length(cls, bodies: Bodies, shortest: int, longest: int) -> Reasons:
        reasons = cls(len(bodies))
        reasons.give(Reason.NO_BODY, bodies.lengths < 0)
        reasons.give(Reason.TOO_SHORT, bodies.lengths < shortest)
        reasons.give(Reason.TOO_LONG, bodies.lengths > longest)
        return reasons

    def give(self, reason: Reason, bad: Mask) -> None:
        if bad.any():
            self._codes[bad & (self._codes == _NONE)] = _CODE[reason]

    def give_rows(self, reason: Reason, rows: Rows) -> None:
        """The same for rows by number."""
        self._codes[rows[self._codes[rows] == _NONE]] = _CODE[reason]

    @property
    def bad(self) -> Mask:
        bad: Mask = self._codes != _NONE
        return bad

    def column(self) -> pa.Array:
        bad = self.bad
        if not bad.any():
            return pa.nulls(len(bad), pa.string())
        return _NAMES.take(pa.array(self._codes, mask=~bad))


def column(values: NDArray[np.generic], kind: pa.DataType, absent: Mask) -> pa.Array:
    """Values as an Arrow column of this type, null where they are absent."""
    stored = kind.to_pandas_dtype() if pa.types.is_integer(kind) else np.int64
    wide = np.ascontiguousarray(values, stored)
    validity = None
    if absent.any():
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(kind, len(wide), [validity, pa.py_buffer(wide)])
