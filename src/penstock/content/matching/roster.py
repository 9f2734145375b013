"""Filters by small numbers, so that arrays can name them; a number that is free is given again."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.entries import Entry
from penstock.content.matching.kernel import address

_SMALLEST: Final = 16


class Roster:
    __slots__ = ("_entries", "_free", "addresses", "keys", "odd", "odds")

    def __init__(self) -> None:
        self._entries: list[Entry | None] = []
        self._free: list[int] = []
        self.keys: NDArray[np.object_] = np.empty(_SMALLEST, object)
        self.odd: NDArray[np.bool_] = np.zeros(_SMALLEST, bool)  #: asks for more than ranges
        self.odds = 0  #: how many do
        self.addresses = (address(self.odd), address(self.keys))

    def __getitem__(self, number: int) -> Entry:
        entry = self._entries[number]
        assert entry is not None, "a cell names only what is there"
        return entry

    def add(self, entry: Entry, odd: bool) -> None:
        if self._free:
            entry.number = self._free.pop()
            self._entries[entry.number] = entry
        else:
            entry.number = len(self._entries)
            self._entries.append(entry)
            if entry.number == len(self.keys):
                self.keys = np.concatenate([self.keys, np.empty_like(self.keys)])
                self.odd = np.concatenate([self.odd, np.zeros_like(self.odd)])
                self.addresses = (address(self.odd), address(self.keys))
        self.keys[entry.number] = entry.key
        self.odd[entry.number] = odd
        self.odds += odd

    def remove(self, entry: Entry) -> bool:
        """Forget a filter; whether it was odd."""
        number = entry.number
        odd = bool(self.odd[number])
        self._entries[number] = self.keys[number] = None
        self._free.append(number)
        self.odds -= odd
        return odd
