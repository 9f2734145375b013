"""Types of NumPy columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Texts = NDArray[np.str_]
