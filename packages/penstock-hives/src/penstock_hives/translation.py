"""Texts, numbers and dates of mails and notifications in the language of the person.

The English text is the key, as on the public page; `languages/*.json` have the others. A text
without a translation, and every text for another language, is in English.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_MONTHS: Final = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
#: Thousands and decimals; a narrow space that does not break.
_SEPARATORS: Final = {"de": {",": ".", ".": ","}, "fr": {",": "\u202f", ".": ","}}


def format_number(value: float, locale: str, pattern: str = ",") -> str:
    separators = str.maketrans(_SEPARATORS.get(locale[:2].lower(), {}))
    return format(value, pattern).translate(separators)


def format_day(day: date, locale: str) -> str:
    """Day and month, as in `23 February`."""
    language = locale[:2].lower()
    month = _MONTHS.get(language, _MONTHS["en"]).split()[day.month - 1]
    number = f"{day.day}." if language == "de" else str(day.day)
    if language == "fr" and day.day == 1:
        number = "1er"
    return f"{number} {month}"


def translate(text: str, locale: str, **values: object) -> str:
    """The text with `{name}` replaced by values, which may contain braces themselves."""
    found = _texts(locale[:2].lower()).get(text, text)
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), found)


@cache
def _texts(language: str) -> Mapping[str, str]:
    if language not in ("de", "fr"):
        return {}
    file = files(__package__).joinpath("languages", f"{language}.json")
    texts: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return texts
