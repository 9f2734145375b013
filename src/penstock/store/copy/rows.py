"""Columns of bytes interleaved into rows, as COPY wants them.

A row is the number of its fields, then for each field its length and its bytes; a null field has
the length -1 and no bytes. Rows whose fields all have one size and are never null, which is what
counts are, are laid out in one go. Others are placed field by field: where each begins is known
beforehand.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.store.copy.columns import Bytes, Column, Fixed, column

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER: Final = struct.pack(">h", -1)

_Places = npt.NDArray[np.int64]


def encode(batch: Any, kinds: Sequence[str]) -> bytes:
    """The rows of an Arrow record batch, its columns in these types of PostgreSQL's."""
    if batch.num_rows == 0:
        return b""
    columns = [
        column(array, name, kind)
        for array, name, kind in zip(batch.columns, batch.schema.names, kinds, strict=True)
    ]
    if all(isinstance(one, Fixed) and one.valid is None for one in columns):
        return _uniform([one for one in columns if isinstance(one, Fixed)], batch.num_rows)
    return _ragged(columns, batch.num_rows)


def _uniform(columns: list[Fixed], count: int) -> bytes:
    width = 2 + sum(4 + one.matrix.shape[1] for one in columns)
    rows = np.empty((count, width), np.uint8)
    rows[:, :2] = _number(len(columns), 2)
    at = 2
    for one in columns:
        size = one.matrix.shape[1]
        rows[:, at : at + 4] = _number(size, 4)
        rows[:, at + 4 : at + 4 + size] = one.matrix
        at += 4 + size
    return rows.tobytes()


def _ragged(columns: list[Column], count: int) -> bytes:
    lengths = [_lengths(one, count) for one in columns]
    sizes = np.full(count, 2, np.int64)
    for length in lengths:
        sizes += 4 + np.maximum(length, 0)
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    at = ends - sizes
    _place(out, at, np.broadcast_to(_number(len(columns), 2), (count, 2)))
    at = at + 2
    for one, length in zip(columns, lengths, strict=True):
        _place(out, at, length.astype(">i4").view(np.uint8).reshape(count, 4))
        at = at + 4
        if isinstance(one, Fixed):
            there = slice(None) if one.valid is None else one.valid
            _place(out, at[there], one.matrix[there])
        else:
            # Each byte's place: where its value begins here, less where it begins there.
            begins = np.cumsum(one.lengths) - one.lengths
            out[np.repeat(at - begins, one.lengths) + np.arange(len(one.data))] = one.data
        at = at + np.maximum(length, 0)
    return out.tobytes()


def _lengths(one: Column, count: int) -> _Places:
    """What is written as each value's length."""
    plain = np.full(count, one.matrix.shape[1]) if isinstance(one, Fixed) else one.lengths
    lengths: _Places = plain if one.valid is None else np.where(one.valid, plain, -1)
    return lengths


def _place(out: Bytes, at: _Places, matrix: Bytes) -> None:
    out[at[:, None] + np.arange(matrix.shape[1])] = matrix


def _number(value: int, width: int) -> Bytes:
    return np.frombuffer(value.to_bytes(width), np.uint8)
