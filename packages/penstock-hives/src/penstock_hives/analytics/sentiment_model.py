"""A sentiment model trained on rated feedback: logistic regression over terms and VADER's scores.

One in five rated messages, chosen by id, is held out. A candidate is published only if its balanced
accuracy on them is at least one point better than that of the current model. Ratings of three stars
are not used. The model is a JSON file and is evaluated in plain Python on the workers.

    model = load_latest(folder)     # None: no model was published
    model.score("The soup was cold.")
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from penstock.core.logs import get_logger
from penstock_hives.analytics.sentiment import MAX_CHARACTERS, SentimentModel, VaderModel
from penstock_store import Database

log = get_logger(__name__)

MODEL_FILE: Final = "sentiment.json"
#: Version of the file format.
FILE_FORMAT: Final = 1
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


def terms(text: str) -> Iterator[str]:
    """Words, and pairs of adjacent words."""
    words = _WORD.findall(text[:MAX_CHARACTERS].lower())
    yield from words
    for one, other in pairwise(words):
        yield f"{one} {other}"


@dataclass(frozen=True, slots=True)
class TrainedSentimentModel:
    """Logistic regression over weighted terms and VADER's scores."""

    #: Inverse document frequency and weight of each term.
    weights: Mapping[str, tuple[float, float]]
    #: Weights of VADER's compound, positive and negative scores.
    shades: tuple[float, float, float]
    bias: float
    made: str
    rows: int  #: ratings for training and evaluation
    right: float  #: balanced accuracy on held-out messages
    _vader: VaderModel = field(default_factory=VaderModel, repr=False, compare=False)

    @property
    def name(self) -> str:
        document = json.dumps(self._learned(), sort_keys=True).encode()
        return f"trained-{self.made}-{hashlib.blake2b(document, digest_size=4).hexdigest()}"

    @property
    def neutral(self) -> float:
        # It is trained on positive and negative messages: an uncertain score is neutral.
        return 0.2

    def score(self, text: str) -> float:
        return math.tanh(self.log_odds(text) / 2)  # twice the probability, less one

    def log_odds(self, text: str) -> float:
        """Log odds of positive; 0 for a text without known terms."""
        total, length = 0.0, 0.0
        for term, count in Counter(terms(text)).items():
            known = self.weights.get(term)
            if known is not None:
                share = (1 + math.log(count)) * known[0]
                total += share * known[1]
                length += share * share
        shades = self._vader.shades(text)
        if not length and not any(shades):
            return 0.0
        lexicon = sum(a * b for a, b in zip(self.shades, shades, strict=True))
        return self.bias + lexicon + (total / math.sqrt(length) if length else 0.0)

    def save(self, folder: Path) -> None:
        """Atomic: readers see the old file until the new one is complete."""
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"form": FILE_FORMAT, "made": self.made, "rows": self.rows, "right": self.right}
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", delete=False) as draft:
            json.dump({**facts, **self._learned()}, draft, ensure_ascii=False)
        Path(draft.name).replace(folder / MODEL_FILE)

    def _learned(self) -> dict[str, Any]:
        return {"bias": self.bias, "shades": self.shades, "weights": dict(self.weights)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `KeyError` or `TypeError` for an invalid document."""
        if document["form"] != FILE_FORMAT:
            raise ValueError(f"unknown format {document['form']}")
        overall, good, bad = map(float, document["shades"])
        weights = {
            str(term): (float(rarity), float(weight))
            for term, (rarity, weight) in document["weights"].items()
        }
        facts = str(document["made"]), int(document["rows"]), float(document["right"])
        return cls(weights, (overall, good, bad), float(document["bias"]), *facts)


def load_latest(folder: Path) -> TrainedSentimentModel | None:
    """The current model, if there is one. An invalid file is logged and ignored."""
    file = folder / MODEL_FILE
    try:
        return TrainedSentimentModel.read(json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("sentiment model unreadable", file=str(file), reason=repr(error))
        return None


#: The newest ratings used for training: half a minute on the driver.
MAX_RATED: Final = 50_000
#: The least held-out messages of each class: with fewer, differences are noise.
MIN_HELD_OUT: Final = 50
#: Retrained when there are this many times as many ratings.
RETRAIN_GROWTH: Final = 1.1
#: The least gain of balanced accuracy over the current model.
MIN_GAIN: Final = 0.01
_HELD_OUT: Final = 5
_TERMS: Final = 20_000
#: The least number of messages with a term.
_USED_BY: Final = 3

_RATED: Final = """
    SELECT id, content, rating FROM user_message
    WHERE rating IS NOT NULL AND rating <> 3 ORDER BY id DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class RatedMessage:
    id: int
    content: str
    good: bool

    @property
    def held_out(self) -> bool:
        return zlib.crc32(b"%d" % self.id) % _HELD_OUT == 0


def choose_model(database: Database, folder: Path | None, day: date) -> SentimentModel:
    """The model for feedback on this day; a trained one if it is better than VADER."""
    if folder is None:
        return VaderModel()
    current = load_latest(folder)
    rows = database.rows(_RATED, {"most": MAX_RATED})
    rated = [RatedMessage(row["id"], row["content"], row["rating"] > 3) for row in rows]
    if current is not None and len(rated) < min(current.rows * RETRAIN_GROWTH, MAX_RATED):
        return current
    better = train_better_model(rated, current or VaderModel(), day)
    if better is None:
        return current or VaderModel()
    better.save(folder)
    return better


def train_better_model(
    rated: Sequence[RatedMessage], current: SentimentModel, day: date
) -> TrainedSentimentModel | None:
    held_out = [each for each in rated if each.held_out]
    sides = [sum(each.good is good for each in held_out) for good in (True, False)]
    if min(sides) < MIN_HELD_OUT:
        return None
    candidate = train_model([each for each in rated if not each.held_out], day)
    right, before = (balanced_accuracy(each, held_out) for each in (candidate, current))
    log.info(
        "sentiment model trained", rows=len(rated), right=right, model=current.name, before=before
    )
    if right < before + MIN_GAIN:
        return None
    return replace(candidate, rows=len(rated), right=right)


def balanced_accuracy(model: SentimentModel, rated: Iterable[RatedMessage]) -> float:
    """Both classes weigh the same; a score of 0 is half right."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    for each in rated:
        score = model.score(each.content)
        shares[each.good].append(0.5 if score == 0 else float((score > 0) is each.good))
    return round(sum(sum(side) / len(side) for side in shares.values()) / 2, 4)


def train_model(rated: Sequence[RatedMessage], day: date) -> TrainedSentimentModel:
    import numpy as np
    from scipy.sparse import csr_matrix, hstack  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vader = VaderModel()
    vectorizer = TfidfVectorizer(
        analyzer=terms, min_df=_USED_BY, max_features=_TERMS, sublinear_tf=True
    )
    words = vectorizer.fit_transform([each.content for each in rated])
    shades = csr_matrix(np.array([vader.shades(each.content) for each in rated]))
    regression = LogisticRegression(C=4.0, class_weight="balanced", max_iter=500)
    regression.fit(hstack([words, shades]).tocsr(), [each.good for each in rated])
    learned = [float(weight) for weight in regression.coef_[0]]
    weights = {
        str(term): (float(vectorizer.idf_[index]), learned[index])
        for term, index in sorted(vectorizer.vocabulary_.items())
    }
    overall, good, bad = learned[-3:]
    bias = float(regression.intercept_[0])
    return TrainedSentimentModel(
        weights, (overall, good, bad), bias, day.isoformat(), len(rated), 0.0
    )
