"""Which of four sources a sample has: human, cattle, pig or poultry, where the ids of a reference
say so. The original tells human from animal; this goes further, by trees alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.jobs.errors import DataError, Problem
from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.indicators import SAMPLE, source
from penstock.jobs.science.matrix import Floats, Matrix
from penstock.jobs.science.trees import SAMPLES, Trees

#: With fewer of one, what is learnt is those samples and not the source.
_FEWEST: Final = 5


@dataclass(frozen=True, slots=True)
class Judgement:
    sources: tuple[str, ...]  #: of each sample; empty where nothing was counted
    confidence: Floats

    def right(self, samples: Sequence[str]) -> tuple[int, int]:
        """How many have the source that their ids say, of those whose ids say one."""
        told = [(said, source(name)) for said, name in zip(self.sources, samples, strict=True)]
        known = [(said, true) for said, true in told if said and true]
        return sum(said == true for said, true in known), len(known)


class Sources:
    def __init__(
        self, matrix: Matrix, coefficients: Coefficients, *, samples: int = SAMPLES, seed: int = 1
    ) -> None:
        names = [source(sample) for sample in matrix.samples]
        rows = np.array([row for row, name in enumerate(names) if name], dtype=np.intp)
        labels = np.array([name for name in names if name])
        found, counts = np.unique(labels, return_counts=True)
        if len(found) < 2 or counts.min() < _FEWEST:
            told = ", ".join(f"{n} {name}" for name, n in zip(found, counts, strict=True)) or "none"
            text = f"at least {_FEWEST} samples of each of two sources or more; here: {told}"
            raise DataError([Problem(0, SAMPLE, text)])
        self._trees = Trees(matrix.values[rows], labels, coefficients, samples=samples, seed=seed)

    def predict(self, values: Floats, seasons: Sequence[int]) -> Judgement:
        chances = self._trees.chances(values, seasons)
        names = self._trees.labels[chances.argmax(axis=1)].tolist()
        counted = np.asarray(np.isfinite(values).any(axis=1))
        sources = (name if there else "" for name, there in zip(names, counted, strict=True))
        return Judgement(tuple(sources), np.where(counted, chances.max(axis=1), 0.0))
