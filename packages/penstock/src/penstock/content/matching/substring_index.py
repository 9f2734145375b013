"""The bitmaps of a block for `str-contains`, one per attribute, computed per publication.

The bitmap has a bit for every filter without a substring predicate on the attribute, and for those
whose substring occurs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.entries import FilterEntry
from penstock.content.messages import Operator

Bits = NDArray[np.uint8]


class SubstringIndex:
    __slots__ = ("_found", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._found: dict[str, tuple[TrigramIndex, Bits]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def write(self, start: int, entries: Sequence[FilterEntry]) -> None:
        """Write filters in multiples of eight, from a row on."""
        octets = slice(start // 8, (start + len(entries)) // 8)
        for _, line in self._found.values():
            line.reshape(2, -1)[:, octets] = 0xFF
        for row, entry in enumerate(entries, start):
            for attribute, text in substring_operands(entry).items():
                if attribute not in self._found:
                    every = np.full(2 * self._width, 0xFF, np.uint8)
                    self._found[attribute] = (TrigramIndex(), every)
                trigrams, line = self._found[attribute]
                trigrams.add(text, row)
                clear_bit(line, row)

    def erase(self, row: int, entry: FilterEntry) -> None:
        for attribute, text in substring_operands(entry).items():
            self._found[attribute][0].remove(text, row)

    def narrow(self, left: Bits, texts: Mapping[str, str]) -> None:
        """Clear the bits of filters whose substring does not occur."""
        for attribute, (trigrams, line) in self._found.items():
            if attribute in texts:
                found = line.copy()
                for row in trigrams.found(texts[attribute]):
                    byte, bit = row >> 3, 1 << (row & 7)
                    found[byte] |= bit
                    found[self._width + byte] |= bit
                left &= found


def clear_bit(line: Bits, row: int) -> None:
    byte, kept = row >> 3, 0xFF ^ 1 << (row & 7)
    line[byte] &= kept
    line[len(line) // 2 + byte] &= kept


def substring_operands(entry: FilterEntry) -> dict[str, str]:
    """The substring predicate per attribute; of several, the longest."""
    found: dict[str, str] = {}
    for attribute, operator, operand in entry.rest:
        if operator is not Operator.CONTAINS or not isinstance(operand, str):
            continue
        if len(operand) > len(found.get(attribute, "")):
            found[attribute] = operand
    return found


_TRIGRAM_LENGTH: Final = 3


class TrigramIndex:
    """Rows of a block by substring: which of many substrings occur in a value.

    A substring is filed under its rarest run of three characters (or fewer, if it is shorter); a
    value is looked up by its own runs.
    """

    __slots__ = ("_filed", "_rows", "_sizes")

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {}
        self._filed: dict[str, list[str]] = {}
        self._sizes = [0] * (_TRIGRAM_LENGTH + 1)  # texts by the length of their run

    def add(self, text: str, row: int) -> None:
        rows = self._rows.get(text)
        if rows is not None:
            rows.append(row)
            return
        self._rows[text] = [row]
        run = min(_trigrams(text), key=lambda run: len(self._filed.get(run, ())))
        self._filed.setdefault(run, []).append(text)
        self._sizes[len(run)] += 1

    def remove(self, text: str, row: int) -> None:
        rows = self._rows[text]
        rows.remove(row)
        if rows:
            return
        del self._rows[text]
        for run in _trigrams(text):
            filed = self._filed.get(run, [])
            if text in filed:
                filed.remove(text)
                self._sizes[len(run)] -= 1
                if not filed:
                    del self._filed[run]
                return

    def found(self, value: str) -> Iterator[int]:
        for size in range(1, _TRIGRAM_LENGTH + 1):
            if not self._sizes[size]:
                continue
            runs = {value[at : at + size] for at in range(len(value) - size + 1)}
            for run in runs & self._filed.keys():
                for text in self._filed[run]:
                    if text in value:
                        yield from self._rows[text]


def _trigrams(text: str) -> list[str]:
    size = min(_TRIGRAM_LENGTH, len(text))
    return [text[at : at + size] for at in range(len(text) - size + 1)]
