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
#: The form of the file; another one is none we can read.
FILE_FORMAT: Final = 1
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


def terms(text: str) -> Iterator[str]:
    """What is counted of a text: its words, and each with the next."""
    words = _WORD.findall(text[:MAX_CHARACTERS].lower())
    yield from words
    for one, other in pairwise(words):
        yield f"{one} {other}"


@dataclass(frozen=True, slots=True)
class TrainedSentimentModel:
    """Logistic regression over weighted counts of terms, and over what VADER says."""

    #: A term's rarity, and what it says of the text.
    weights: Mapping[str, tuple[float, float]]
    #: Of VADER's three figures: on the whole, and how much of it is good, and bad.
    shades: tuple[float, float, float]
    bias: float
    made: str
    rows: int  #: ratings it has learned from and was measured with
    right: float  #: the share it had right of what it had not seen
    _vader: VaderModel = field(default_factory=VaderModel, repr=False, compare=False)

    @property
    def name(self) -> str:
        document = json.dumps(self._learned(), sort_keys=True).encode()
        return f"trained-{self.made}-{hashlib.blake2b(document, digest_size=4).hexdigest()}"

    @property
    def neutral(self) -> float:
        # It has learned from those who were for or against: what it is not sure of is neither.
        return 0.2

    def score(self, text: str) -> float:
        return math.tanh(self.log_odds(text) / 2)  # twice the probability, less one

    def log_odds(self, text: str) -> float:
        """Of good against bad; even, of a text it knows nothing of."""
        drawn, length = 0.0, 0.0
        for term, count in Counter(terms(text)).items():
            known = self.weights.get(term)
            if known is not None:
                share = (1 + math.log(count)) * known[0]
                drawn += share * known[1]
                length += share * share
        shades = self._vader.shades(text)
        if not length and not any(shades):
            return 0.0
        said = sum(a * b for a, b in zip(self.shades, shades, strict=True))
        return self.bias + said + (drawn / math.sqrt(length) if length else 0.0)

    def save(self, folder: Path) -> None:
        """All of it or nothing: whoever reads has the one before until it is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"form": FILE_FORMAT, "made": self.made, "rows": self.rows, "right": self.right}
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", delete=False) as draft:
            json.dump({**facts, **self._learned()}, draft, ensure_ascii=False)
        Path(draft.name).replace(folder / MODEL_FILE)

    def _learned(self) -> dict[str, Any]:
        return {"bias": self.bias, "shades": self.shades, "weights": dict(self.weights)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `KeyError` or `TypeError` for what is no model."""
        if document["form"] != FILE_FORMAT:
            raise ValueError(f"a form {document['form']} is not known")
        overall, good, bad = map(float, document["shades"])
        weights = {
            str(term): (float(rarity), float(weight))
            for term, (rarity, weight) in document["weights"].items()
        }
        facts = str(document["made"]), int(document["rows"]), float(document["right"])
        return cls(weights, (overall, good, bad), float(document["bias"]), *facts)


def load_latest(folder: Path) -> TrainedSentimentModel | None:
    """The model that is in use, if there is one. A file that is none is passed over, and told."""
    file = folder / MODEL_FILE
    try:
        return TrainedSentimentModel.read(json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("sentiment model unreadable", file=str(file), reason=repr(error))
        return None


#: The newest so many are learned from: half a minute's work for the driver, whatever there is.
MAX_RATED: Final = 50_000
#: Fewer of either kind to be measured by would make a better model of chance.
MIN_HELD_OUT: Final = 50
#: Learned anew when there is that much more to learn from.
RETRAIN_GROWTH: Final = 1.1
#: By how much a model has to be better than the one in use.
MIN_GAIN: Final = 0.01
_HELD_OUT: Final = 5
_TERMS: Final = 20_000
#: A term that fewer have used says something of them, not of places.
_USED_BY: Final = 3

_RATED: Final = """
    SELECT id, content, rating FROM user_message
    WHERE rating IS NOT NULL AND rating <> 3 ORDER BY id DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class RatedMessage:
    """A message and how it was meant, by who wrote it."""

    id: int
    content: str
    good: bool

    @property
    def held_out(self) -> bool:
        return zlib.crc32(b"%d" % self.id) % _HELD_OUT == 0


def choose_model(database: Database, folder: Path | None, day: date) -> SentimentModel:
    """What feedback is read with on this day: a model that has learned, where there is one."""
    if folder is None:
        return VaderModel()
    held = load_latest(folder)
    found = database.rows(_RATED, {"most": MAX_RATED})
    rated = [RatedMessage(row["id"], row["content"], row["rating"] > 3) for row in found]
    if held is not None and len(rated) < min(held.rows * RETRAIN_GROWTH, MAX_RATED):
        return held
    better = train_better_model(rated, held or VaderModel(), day)
    if better is None:
        return held or VaderModel()
    better.save(folder)
    return better


def train_better_model(
    rated: Sequence[RatedMessage], held: SentimentModel, day: date
) -> TrainedSentimentModel | None:
    """A model that is better than the one in use; none, if there is too little to say so."""
    unseen = [each for each in rated if each.held_out]
    sides = [sum(each.good is good for each in unseen) for good in (True, False)]
    if min(sides) < MIN_HELD_OUT:
        return None
    candidate = train_model([each for each in rated if not each.held_out], day)
    right, before = balanced_accuracy(candidate, unseen), balanced_accuracy(held, unseen)
    log.info(
        "sentiment model trained", rows=len(rated), right=right, model=held.name, before=before
    )
    if right < before + MIN_GAIN:
        return None
    return replace(candidate, rows=len(rated), right=right)


def balanced_accuracy(model: SentimentModel, rated: Iterable[RatedMessage]) -> float:
    """How many are told rightly, as much by the bad as by the good; no opinion is half right."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    for each in rated:
        score = model.score(each.content)
        shares[each.good].append(0.5 if score == 0 else float((score > 0) is each.good))
    return round(sum(sum(side) / len(side) for side in shares.values()) / 2, 4)


def train_model(rated: Sequence[RatedMessage], day: date) -> TrainedSentimentModel:
    """Learned from all of these."""
    import numpy as np
    from scipy.sparse import csr_matrix, hstack  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vader = VaderModel()
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
    return TrainedSentimentModel(
        weights, (overall, good, bad), bias, day.isoformat(), len(rated), 0.0
    )
