"""A publication as indexes ask for it: its numbers apart from its texts."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.content.messages import Publication
from penstock.content.values import Number, Value, Variable

#: Integers up to here are floats as well.
_EXACT: Final = 1 << 53


class Event:
    __slots__ = ("_held", "_reach", "attributes", "exact", "numbers", "texts")

    def __init__(self, publication: Publication) -> None:
        attributes = publication.attributes
        self.attributes: Mapping[str, Value | Variable] = attributes
        self.numbers: dict[str, Number] = {}
        self.texts: dict[str, str] = {}
        self._reach: dict[tuple[str, ...], list[Number]] = {}
        self._held: dict[tuple[str, ...], NDArray[np.float64]] = {}
        self.exact = True  #: whether floats can express all its numbers
        for name, value in attributes.items():
            if value.__class__ is str:
                self.texts[name] = value
            elif value.__class__ is float:
                self.numbers[name] = value
            elif value.__class__ is int:
                self.numbers[name] = value
                if not -_EXACT <= value <= _EXACT:
                    self.exact = self.exact and value == float(value)

    def reach(self, names: tuple[str, ...]) -> list[Number]:
        """Its numbers under these names, each and its negative; less than any where it has none."""
        found = self._reach.get(names)
        if found is None:
            found = self._reach[names] = []
            for name in names:
                number = self.numbers.get(name)
                found += (-inf, -inf) if number is None else (number, -number)
        return found

    def held(self, names: tuple[str, ...]) -> NDArray[np.float64]:
        """The same as an array."""
        found = self._held.get(names)
        if found is None:
            found = self._held[names] = np.array(self.reach(names), np.float64)
        return found
