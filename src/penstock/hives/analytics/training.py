"""Learns how feedback is meant from those who gave stars with it, and proves it before it is used.

One in five rated messages is never learned from: by those, the candidate is measured beside what is
in use, VADER at first. Which they are depends on the message alone, so that a model is never
measured by what an earlier one has learned. Only one that is better is published: every change of
the model has all feedback read again. Stars in the middle teach nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

from penstock.core.logs import get_logger
from penstock.hives.analytics.sentiment import Sentiment, Vader
from penstock.hives.analytics.trained import Trained, latest, terms
from penstock.store import Database

log = get_logger(__name__)

#: The newest so many are learned from: half a minute's work for the driver, whatever there is.
MOST: Final = 50_000
#: Fewer of either kind to be measured by would make a better model of chance.
LEAST_MEASURED: Final = 50
#: Learned anew when there is that much more to learn from.
GROWTH: Final = 1.1
#: By how much a model has to be better than the one in use.
GAIN: Final = 0.01
_HELD_OUT: Final = 5
_TERMS: Final = 20_000
#: A term that fewer have used says something of them, not of places.
_USED_BY: Final = 3

_RATED: Final = """
    SELECT id, content, rating FROM user_message
    WHERE rating IS NOT NULL AND rating <> 3 ORDER BY id DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Rated:
    """A message and how it was meant, by who wrote it."""

    id: int
    content: str
    good: bool

    @property
    def held_out(self) -> bool:
        return zlib.crc32(b"%d" % self.id) % _HELD_OUT == 0


def model_for(database: Database, folder: Path | None, day: date) -> Sentiment:
    """What feedback is read with on this day: a model that has learned, where there is one."""
    if folder is None:
        return Vader()
    held = latest(folder)
    found = database.rows(_RATED, {"most": MOST})
    rated = [Rated(row["id"], row["content"], row["rating"] > 3) for row in found]
    if held is not None and len(rated) < min(held.rows * GROWTH, MOST):
        return held
    better = improved(rated, held or Vader(), day)
    if better is None:
        return held or Vader()
    better.save(folder)
    return better


def improved(rated: Sequence[Rated], held: Sentiment, day: date) -> Trained | None:
    """A model that is better than the one in use; none, if there is too little to say so."""
    unseen = [each for each in rated if each.held_out]
    sides = [sum(each.good is good for each in unseen) for good in (True, False)]
    if min(sides) < LEAST_MEASURED:
        return None
    candidate = fit([each for each in rated if not each.held_out], day)
    right, before = right_share(candidate, unseen), right_share(held, unseen)
    log.info("sentiment learned", rows=len(rated), right=right, model=held.name, before=before)
    if right < before + GAIN:
        return None
    return replace(candidate, rows=len(rated), right=right)


def right_share(model: Sentiment, rated: Iterable[Rated]) -> float:
    """How many are told rightly, as much by the bad as by the good; no opinion is half right."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    for each in rated:
        score = model.score(each.content)
        shares[each.good].append(0.5 if score == 0 else float((score > 0) is each.good))
    return round(sum(sum(side) / len(side) for side in shares.values()) / 2, 4)


def fit(rated: Sequence[Rated], day: date) -> Trained:
    """Learned from all of these."""
    import numpy as np
    from scipy.sparse import csr_matrix, hstack  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vader = Vader()
    counted = TfidfVectorizer(
        analyzer=terms, min_df=_USED_BY, max_features=_TERMS, sublinear_tf=True
    )
    words = counted.fit_transform([each.content for each in rated])
    shades = csr_matrix(np.array([vader.shades(each.content) for each in rated]))
    regression = LogisticRegression(C=4.0, class_weight="balanced", max_iter=500)
    regression.fit(hstack([words, shades]).tocsr(), [each.good for each in rated])
    drawn = [float(weight) for weight in regression.coef_[0]]
    weights = {
        str(term): (float(counted.idf_[place]), drawn[place])
        for term, place in sorted(counted.vocabulary_.items())
    }
    overall, good, bad = drawn[-3:]
    bias = float(regression.intercept_[0])
    return Trained(weights, (overall, good, bad), bias, day.isoformat(), len(rated), 0.0)
