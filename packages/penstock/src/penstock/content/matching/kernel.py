"""Optional C code for the inner loops of matching.

`python -m penstock.content.matching.kernel` compiles `kernel.c` with the machine's compiler. New
matchers then use it, with the same results; without it they use NumPy.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from struct import pack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]

#: The version of the library's interface; another one is not used.
_VERSION: Final = 2
_SOURCE: Final = Path(__file__).with_suffix(".c")
#: Not `kernel.so`: Python would import it in place of this module.
_LIBRARY: Final = Path(__file__).with_name("libkernel.so")


class NativeKernel:
    """Addresses are of arrays that the caller holds: columns, residual flags, keys.

    Keys of matches are added to `found`. The result has rows whose ranges match and which have
    residual predicates; there is space for `most` of them.
    """

    __slots__ = ("_block", "_cells")

    def __init__(self, library: ctypes.PyDLL) -> None:
        word, data, item = ctypes.c_int64, ctypes.c_char_p, ctypes.py_object
        self._cells = library.through_cells
        self._cells.argtypes = (data, word, data, word, word, word, item, word)
        self._cells.restype = word
        self._block = library.through_block
        self._block.argtypes = (word, data, word, word, word, data, word, word, word, item, word)
        self._block.restype = word

    def cells(
        self,
        cells: Sequence[int],
        held: Sequence[float],
        odd: int,
        keys: int,
        found: list[Any],
        most: int,
    ) -> Rows:
        """Match cells, each given by four numbers: address of its columns, stride, number of
        columns, address of the filters' numbers."""
        left = np.empty(most, np.intp)
        count = self._cells(
            *(pack(f"{len(cells)}q", *cells), len(cells) // 4),
            *(pack(f"{len(held)}d", *held), len(held)),
            *(odd, keys, found, array_address(left)),
        )
        return left[:count]

    def block(
        self,
        bitmaps: int,
        picked: Sequence[int],
        capacity: int,
        columns: int,
        held: Sequence[float],
        odd: int,
        keys: int,
        found: list[Any],
        most: int,
    ) -> Rows:
        """Match a block with `capacity` rows by the picked bitmaps."""
        left = np.empty(most, np.intp)
        count = self._block(
            *(bitmaps, pack(f"{len(picked)}q", *picked), len(picked), capacity // 64),
            *(columns, pack(f"{len(held)}d", *held), len(held)),
            *(odd, keys, found, array_address(left)),
        )
        return left[:count]


def array_address(array: NDArray[Any]) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


@cache
def load_kernel(path: Path = _LIBRARY) -> NativeKernel | None:
    """The compiled library, if it exists and has the right version."""
    if not path.exists():
        return None
    try:
        library = ctypes.PyDLL(str(path))  # holds the GIL: loops are short
        library.version.restype = ctypes.c_int64
        return NativeKernel(library) if library.version() == _VERSION else None
    except (OSError, AttributeError):
        return None


def build_kernel(into: Path = _LIBRARY) -> None:
    """Raises `CalledProcessError` or `FileNotFoundError`."""
    made = into.with_suffix(".new")
    words = [os.environ.get("CC", "cc"), "-O3", "-shared", "-fPIC", "-o", str(made), str(_SOURCE)]
    # For this machine, if the compiler supports it: wider registers.
    if subprocess.run([*words, "-march=native"], capture_output=True, check=False).returncode:
        subprocess.run(words, check=True)
    made.replace(into)


if __name__ == "__main__":
    try:
        build_kernel()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"not compiled: {error}")
    sys.stdout.write(f"{_LIBRARY}\n")
