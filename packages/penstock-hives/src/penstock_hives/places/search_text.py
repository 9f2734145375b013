"""Free-text search of places: accents do not matter, and a word may have one wrong letter.

Each word has to be found in a place's name, type, town or ZIP code.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

#: Shorter words must be right: one wrong letter would match too much.
_MIN_TOLERANT: Final = 4
_MARKS: Final = re.compile("[\u0300-\u036f]")
_WORD: Final = re.compile(r"\w+")


def plain_text(text: str) -> str:
    """In lower case, without accents."""
    return _MARKS.sub("", unicodedata.normalize("NFKD", text).lower())


@lru_cache(maxsize=256)
def word_patterns(text: str) -> tuple[re.Pattern[str], ...]:
    """A regular expression for each word of a search."""
    words = _WORD.findall(plain_text(text).replace("_", " "))
    return tuple(re.compile(_pattern(word)) for word in words)


def _pattern(word: str) -> str:
    """The word anywhere, or at the beginning of a word with a letter changed, added, left out or
    exchanged with the next."""
    if len(word) < _MIN_TOLERANT or word.isdecimal():
        return word
    places = range(len(word))
    variants = {
        *(f"{word[:at]}.{word[at + 1 :]}" for at in places),
        *(f"{word[:at]}.{word[at:]}" for at in places),
        *(f"{word[:at]}{word[at + 1 :]}" for at in places),
        *(f"{word[:at]}{word[at + 1]}{word[at]}{word[at + 2 :]}" for at in places[:-1]),
    }
    return f"{word}|(^|[^a-z0-9])({'|'.join(sorted(variants))})"
