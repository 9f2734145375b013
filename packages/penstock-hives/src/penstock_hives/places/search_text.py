"""Free-text search of places: accents do not matter, and a word may have one wrong letter.

Each word has to be found in a place's name, type, town or ZIP code. Words become regular
expressions that Python and PostgreSQL understand alike.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

#: Shorter words must be right: one wrong letter would match too much.
_MIN_TOLERANT: Final = 4
_COMBINING: Final = "\u0300-\u036f"
_MARKS: Final = re.compile(f"[{_COMBINING}]")
_WORD: Final = re.compile(r"\w+")


def plain_text(text: str) -> str:
    """In lower case, without accents."""
    return _MARKS.sub("", unicodedata.normalize("NFKD", text).lower())


def plain_text_sql(expression: str) -> str:
    """The same as an SQL expression."""
    return f"regexp_replace(lower(normalize({expression}, NFKD)), '[{_COMBINING}]', '', 'g')"


def word_patterns(text: str) -> list[str]:
    """A regular expression for each word of a search."""
    return [_pattern(word) for word in _WORD.findall(plain_text(text).replace("_", " "))]


@lru_cache(maxsize=256)
def compiled_patterns(text: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, word_patterns(text)))


def _pattern(word: str) -> str:
    """The word anywhere, or at the beginning of a word with a letter changed, added, left out or
    exchanged with the next."""
    if len(word) < _MIN_TOLERANT or word.isdecimal():
        return word
    places = range(1, len(word))  # the first letter is right
    variants = {
        *(f"{word[:at]}.{word[at + 1 :]}" for at in places),
        *(f"{word[:at]}.{word[at:]}" for at in places),
        *(f"{word[:at]}{word[at + 1 :]}" for at in places),
        *(f"{word[:at]}{word[at + 1]}{word[at]}{word[at + 2 :]}" for at in places[:-1]),
    }
    return f"{word}|(^|[^a-z0-9])({'|'.join(sorted(variants))})"
