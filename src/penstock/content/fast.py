"""The quick way to read a publication: one expression finds all its pairs at once.

It sees only what is written plainly, without blanks between the parts; everything else, and
everything that is wrong, goes to `reading.py`, so the two cannot differ in what they accept.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.content.messages import Publication
from penstock.content.reading import Clock, now, read_publication, unquoted
from penstock.content.times import parse_time
from penstock.content.values import Operand

#: Every pair takes four characters beside its name and its value: when what was found adds up to
#: the length of the text, nothing was skipped. A whole number has few enough digits to fit.
_PAIRS: Final = re.compile(
    r"""\[([A-Za-z_:/][A-Za-z0-9_:/-]*),("[^"]*"|'[^']*'|[A-Za-z_:/][A-Za-z0-9_:/-]*"""
    r"""|-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,20})?)\](?:,(?=\[)|;\Z)"""
)


class LastRead:
    """Publications by their text, the last of them remembered: who routes one and who keeps it ask
    for the same text, one right after the other."""

    __slots__ = ("_clock", "_publication", "_text")

    def __init__(self, clock: Clock = now) -> None:
        self._clock = clock
        self._text = ""
        self._publication: Publication | None = None

    def __call__(self, text: str) -> Publication:
        if self._publication is None or text is not self._text:
            self.remember(text, parse_publication(text, self._clock))
        assert self._publication is not None
        return self._publication

    def remember(self, text: str, publication: Publication) -> None:
        """What a text says, from somebody who has just written it."""
        self._text, self._publication = text, publication


def parse_publication(text: str, clock: Clock = now) -> Publication:
    """A publication from its text; one without a time is stamped by the clock."""
    body, rest = text, ""
    if text[-2:] != "];":
        end = text.rfind("]") + 1
        body, rest = text[:end] + ";", text[end:]
    pairs = _PAIRS.findall(body)
    length = 0
    attributes: dict[str, Operand] = {}
    for name, value in pairs:
        length += len(name) + len(value) + 4
        first = value[0]
        if first in "\"'":
            attributes[name] = unquoted(value) if value[1] == "$" else value[1:-1]
        elif first in "-0123456789":
            if "." in value:
                attributes[name] = float(value)
            elif value == "-0":
                return read_publication(text, clock)
            else:
                attributes[name] = int(value)
        else:
            attributes[name] = value
    if not pairs or length != len(body) or len(attributes) != len(pairs):
        return read_publication(text, clock)
    if pairs[0][0] != "class" or not isinstance(attributes["class"], str):
        return read_publication(text, clock)
    class_name = attributes.pop("class")
    assert isinstance(class_name, str)
    if rest:
        if len(rest) < 3 or rest[0] != ";" or rest[-1] != ";":
            return read_publication(text, clock)
        return Publication(class_name, attributes, parse_time(text, len(body), len(text) - 1))
    return Publication(class_name, attributes, clock())
