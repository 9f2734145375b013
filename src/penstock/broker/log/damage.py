"""What was found damaged in a log: counted, and told once for each place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Damages:
    __slots__ = ("_known", "_report")

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._known: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        return len(self._known)

    def found(self, path: Path, position: int, what: str) -> None:
        if (path.name, position) not in self._known:
            self._known.add((path.name, position))
            self._report(f"{path} at byte {position}: {what}; skipped")

    def cut(self, path: Path, count: int, offset: int) -> None:
        """A torn tail is how a crash looks, not a damage."""
        self._report(f"{path}: torn tail of {count} bytes cut; the log ends before offset {offset}")
