"""How people speak of a place: from words to a figure between -1 and 1.

`Sentiment` is the interface; whichever model is behind it says its name, and what it has scored is
scored again when the name changes. The first is VADER, a lexicon with rules: English only, and
neutral about what it does not know. One that has learned from ratings (`trained.py`) takes its
place where it is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

#: Longer texts are judged by their beginning: a rant is clear by then.
LETTERS: Final = 4000


class Sentiment(Protocol):
    """A model. Small and picklable: it opens what it needs in the process it works in."""

    @property
    def name(self) -> str: ...

    @property
    def neutral(self) -> float:
        """Scores nearer to 0 are neither."""

    def score(self, text: str) -> float:
        """From -1, bad, to 1, good."""


class Vader:
    def __init__(self) -> None:
        self._analyser: Any = None

    @property
    def name(self) -> str:
        return "vader-3.3.2"

    @property
    def neutral(self) -> float:
        return 0.05  # its authors'

    def score(self, text: str) -> float:
        return self.shades(text)[0]

    def shades(self, text: str) -> tuple[float, float, float]:
        """On the whole, and how much of it is good, and bad."""
        if self._analyser is None:
            from vaderSentiment.vaderSentiment import (  # type: ignore[import-untyped]
                SentimentIntensityAnalyzer,
            )

            self._analyser = SentimentIntensityAnalyzer()
        found = self._analyser.polarity_scores(text[:LETTERS])
        return float(found["compound"]), float(found["pos"]), float(found["neg"])

    def __getstate__(self) -> dict[str, Any]:
        return {"_analyser": None}


def label(score: float, neutral: float) -> str:
    if abs(score) < neutral:
        return "neutral"
    return "positive" if score > 0 else "negative"


SCORED: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("sentiment", pa.float32()),
        ("sentiment_label", pa.string()),
        ("model_version", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What a task does with messages: `id` and `content` in, `SCORED` out."""

    model: Sentiment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            scores = [self.model.score(text) for text in batch["content"].to_pylist()]
            yield pa.RecordBatch.from_pydict(
                {
                    "id": batch["id"],
                    "sentiment": scores,
                    "sentiment_label": [label(score, self.model.neutral) for score in scores],
                    "model_version": [self.model.name] * len(scores),
                },
                SCORED,
            )
