"""Boosted trees as plain numbers: kept as JSON, walked by NumPy.

A model is read wherever there is NumPy, now and in years, and reading one runs no code. Whoever
grows the trees (`boosting.py`) hands them over in this form; tests hold both to the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.forecast.grid import Floats

#: So many places in trees are walked at once: a few megabytes.
_AT_ONCE: Final = 1 << 19


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Nodes of all trees, one after another. A leaf leads to itself."""

    start: float
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    #: Where to go with a value up to the threshold, over it, and unknown.
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    unknown: NDArray[np.int32]
    value: Floats
    depth: int

    def predict(self, rows: Floats) -> Floats:
        step = max(1, _AT_ONCE // max(1, len(self.roots)))
        parts = [self._walk(rows[place : place + step]) for place in range(0, len(rows), step)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _walk(self, rows: Floats) -> Floats:
        width = rows.shape[1]
        flat = np.ascontiguousarray(rows).ravel()
        nodes = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        base = (np.arange(len(rows)) * width)[:, None]
        for _ in range(self.depth):
            seen = flat[base + self.feature[nodes]]
            turned = np.where(seen <= self.threshold[nodes], self.low[nodes], self.high[nodes])
            nodes = np.where(np.isnan(seen), self.unknown[nodes], turned)
        return np.asarray(self.start + self.value[nodes].sum(axis=1))

    def to_json(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: each.tolist() if isinstance(each, np.ndarray) else each
            for name, each in found.items()
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Trees:
        real = ("threshold", "value")
        arrays: dict[str, Any] = {
            each.name: np.array(found[each.name], np.float64 if each.name in real else np.int32)
            for each in fields(cls)
            if each.name not in ("start", "depth")
        }
        return cls(start=float(found["start"]), depth=int(found["depth"]), **arrays)
