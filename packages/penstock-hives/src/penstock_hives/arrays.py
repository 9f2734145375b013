"""Types of NumPy columns, and where runs of equal values start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Texts = NDArray[np.str_]


def is_run_start(column: Numbers) -> Flags:
    """Where a column differs from the row before; the first row always does."""
    starts = np.ones(len(column), bool)
    starts[1:] = column[1:] != column[:-1]
    return starts
