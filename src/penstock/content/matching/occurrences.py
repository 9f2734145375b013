"""The lines of a block for `str-contains`: one an attribute, made as a publication asks.

The line of an attribute has the bits of all who look for nothing in it; those whose text is found
are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.entries import Entry
from penstock.content.matching.grams import Grams
from penstock.content.operators import Operator

Bits = NDArray[np.uint8]


class Occurrences:
    __slots__ = ("_found", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._found: dict[str, tuple[Grams, Bits]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def write(self, start: int, entries: Sequence[Entry]) -> None:
        """Write whole bytes of filters, from a row on."""
        octets = slice(start // 8, (start + len(entries)) // 8)
        for _, line in self._found.values():
            line.reshape(2, -1)[:, octets] = 0xFF
        for row, entry in enumerate(entries, start):
            for attribute, text in looked_for(entry).items():
                if attribute not in self._found:
                    every = np.full(2 * self._width, 0xFF, np.uint8)
                    self._found[attribute] = (Grams(), every)
                grams, line = self._found[attribute]
                grams.add(text, row)
                clear(line, row)

    def erase(self, row: int, entry: Entry) -> None:
        for attribute, text in looked_for(entry).items():
            self._found[attribute][0].remove(text, row)

    def narrow(self, left: Bits, texts: Mapping[str, str]) -> None:
        """Leave those whose texts occur. Who has no such attribute is gone already."""
        for attribute, (grams, line) in self._found.items():
            if attribute in texts:
                found = line.copy()
                for row in grams.found(texts[attribute]):
                    byte, bit = row >> 3, 1 << (row & 7)
                    found[byte] |= bit
                    found[self._width + byte] |= bit
                left &= found


def clear(line: Bits, row: int) -> None:
    """Clear a filter's bit in both halves of a line."""
    byte, kept = row >> 3, 0xFF ^ 1 << (row & 7)
    line[byte] &= kept
    line[len(line) // 2 + byte] &= kept


def looked_for(entry: Entry) -> dict[str, str]:
    """The text a filter wants to find in each attribute; of several in one, the longest."""
    found: dict[str, str] = {}
    for attribute, operator, operand in entry.rest:
        if operator is not Operator.CONTAINS or not isinstance(operand, str):
            continue
        if len(operand) > len(found.get(attribute, "")):
            found[attribute] = operand
    return found
