"""Which of many texts occur in a value: an index of `str-contains`.

A text is filed under its rarest run of three characters, or fewer when it has no more: a value is
asked for each of its own runs, and only texts filed there are looked for in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_RUN: Final = 3


class Grams:
    """Rows of a block by the text they want to find."""

    __slots__ = ("_filed", "_rows", "_sizes")

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {}
        self._filed: dict[str, list[str]] = {}
        self._sizes = [0] * (_RUN + 1)  # how many texts are filed under runs of this size

    def add(self, text: str, row: int) -> None:
        rows = self._rows.get(text)
        if rows is not None:
            rows.append(row)
            return
        self._rows[text] = [row]
        run = min(_runs(text), key=lambda run: len(self._filed.get(run, ())))
        self._filed.setdefault(run, []).append(text)
        self._sizes[len(run)] += 1

    def remove(self, text: str, row: int) -> None:
        rows = self._rows[text]
        rows.remove(row)
        if rows:
            return
        del self._rows[text]
        for run in _runs(text):
            filed = self._filed.get(run, [])
            if text in filed:
                filed.remove(text)
                self._sizes[len(run)] -= 1
                if not filed:
                    del self._filed[run]
                return

    def found(self, value: str) -> Iterator[int]:
        """The rows whose text occurs in the value."""
        for size in range(1, _RUN + 1):
            if not self._sizes[size]:
                continue
            runs = {value[at : at + size] for at in range(len(value) - size + 1)}
            for run in runs & self._filed.keys():
                for text in self._filed[run]:
                    if text in value:
                        yield from self._rows[text]


def _runs(text: str) -> list[str]:
    size = min(_RUN, len(text))
    return [text[at : at + size] for at in range(len(text) - size + 1)]
