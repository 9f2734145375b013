"""A model of sentiment that has learned from ratings: words and pairs of words, each with a weight.

Which words matter, and how much, comes out of `training.py`; what is here reads it from a file and
applies it, in plain Python, so that workers need nothing but the standard library and VADER, whose
opinion is one of the features. The file is JSON: it can be read, compared and thrown away, and
nothing in it is ever executed.

    model = latest(folder)          # or None: nothing has been learned that is worth using
    model.score("The soup was cold.")
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from penstock.core.logs import get_logger
from penstock.hives.analytics.sentiment import LETTERS, Vader

log = get_logger(__name__)

FILE: Final = "sentiment.json"
#: The form of the file; another one is none we can read.
FORM: Final = 1
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


def terms(text: str) -> Iterator[str]:
    """What is counted of a text: its words, and each with the next."""
    words = _WORD.findall(text[:LETTERS].lower())
    yield from words
    for one, other in pairwise(words):
        yield f"{one} {other}"


@dataclass(frozen=True, slots=True)
class Trained:
    """Logistic regression over weighted counts of terms, and over what VADER says."""

    #: A term's rarity, and what it says of the text.
    weights: Mapping[str, tuple[float, float]]
    #: Of VADER's three figures: on the whole, and how much of it is good, and bad.
    shades: tuple[float, float, float]
    bias: float
    made: str
    rows: int  #: ratings it has learned from and was measured with
    right: float  #: the share it had right of what it had not seen
    _vader: Vader = field(default_factory=Vader, repr=False, compare=False)

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
        facts = {"form": FORM, "made": self.made, "rows": self.rows, "right": self.right}
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", delete=False) as draft:
            json.dump({**facts, **self._learned()}, draft, ensure_ascii=False)
        Path(draft.name).replace(folder / FILE)

    def _learned(self) -> dict[str, Any]:
        return {"bias": self.bias, "shades": self.shades, "weights": dict(self.weights)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `KeyError` or `TypeError` for what is no model."""
        if document["form"] != FORM:
            raise ValueError(f"a form {document['form']} is not known")
        overall, good, bad = map(float, document["shades"])
        weights = {
            str(term): (float(rarity), float(weight))
            for term, (rarity, weight) in document["weights"].items()
        }
        facts = str(document["made"]), int(document["rows"]), float(document["right"])
        return cls(weights, (overall, good, bad), float(document["bias"]), *facts)


def latest(folder: Path) -> Trained | None:
    """The model that is in use, if there is one. A file that is none is passed over, and told."""
    file = folder / FILE
    try:
        return Trained.read(json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("no model of sentiment", file=str(file), reason=repr(error))
        return None
