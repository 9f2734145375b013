"""Text into messages: the content language as `grammar.lark` has it.

A descent over one text, strict: whatever is wrong is named with its position and what was expected
there. Publications have a quicker way, `fast.py`, which leaves to this one what it does not see at
a glance.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from math import isinf
from typing import Final, TypeVar

from penstock.content.errors import LanguageError, expected
from penstock.content.messages import (
    Advertisement,
    Composite,
    Expression,
    Join,
    Joining,
    Predicate,
    Publication,
    Subscription,
)
from penstock.content.operators import NUMERIC, TEXTUAL, Operator
from penstock.content.times import parse_time
from penstock.content.values import INT_MAX, INT_MIN, Kind, Number, Operand, Variable

Clock = Callable[[], datetime]
F = TypeVar("F", Subscription, Advertisement)

#: How deep braces may nest and how many parts a composite may have.
DEPTH: Final = 64
PARTS: Final = 256

BLANKS: Final = re.compile(r"[ \t\r\n]*")
NAME: Final = re.compile(r"[A-Za-z_:/][A-Za-z0-9_:/-]*")
STRING: Final = re.compile(r""""[^"]*(?:""[^"]*)*"|'[^']*(?:''[^']*)*'""")
NUMBER: Final = re.compile(
    r"(?P<float>[+-]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|(?:0|[1-9][0-9]*)[eE][+-]?[0-9]+))|0|[+-]?[1-9][0-9]*"
)
VARIABLE: Final = re.compile(r"\$([SIF])\$([A-Za-z_][A-Za-z0-9_-]*)")
_SIGN: Final = re.compile(r"<=|>=|<>|[=<>]")
_WORDS: Final = {o.value: o for o in (*TEXTUAL, Operator.PRESENT)}
_SIGNS: Final = {o.value: o for o in NUMERIC}


def now() -> datetime:
    return datetime.now(UTC)


def parse_subscription(text: str, *, several: bool = False) -> Subscription:
    """`several` allows more than one predicate on an attribute, such as both ends of a range."""
    return _Reader(text, several).whole_filter(Subscription)


def parse_advertisement(text: str, *, several: bool = False) -> Advertisement:
    return _Reader(text, several).whole_filter(Advertisement)


def parse_composite(text: str, *, several: bool = False) -> Composite:
    return _Reader(text, several).composite()


def read_publication(text: str, clock: Clock = now) -> Publication:
    """The strict way; `parse_publication` is the quick one. Without a time it is stamped."""
    return _Reader(text, False).publication(clock)


class _Reader:
    __slots__ = ("_parts", "_position", "_several", "_text")

    def __init__(self, text: str, several: bool) -> None:
        self._text = text
        self._several = several
        self._parts = 0
        self._position = 0
        self._skip()

    # Filters.

    def whole_filter(self, kind: type[F]) -> F:
        found = self._filter(kind)
        self._end()
        return found

    def _filter(self, kind: type[F]) -> F:
        self._open_class()
        self._word("eq")
        self._sign(",")
        class_name = self._text_value("the name of a class")
        self._sign("]")
        predicates: list[Predicate] = []
        named = {"class"}
        while self._sees(","):
            self._sign("[")
            attribute = self._attribute(named, self._several)
            predicates.append(self._predicate(attribute))
        self._sees(";")  # may stand at the end, and means nothing
        return kind(class_name, tuple(predicates))

    def _predicate(self, attribute: str) -> Predicate:
        self._sign(",")
        operator = self._operator()
        self._sign(",")
        start = self._position
        if operator is Operator.PRESENT:
            operand = self._operand("a value or a variable")
        elif operator in NUMERIC:
            operand = self._operand(f"a number or a numeric variable after {operator.value}")
            if not _numeric(operand):
                raise expected(self._text, start, f"a number after {operator.value}")
        else:
            operand = self._operand(f"a text or a $S$ variable after {operator.value}")
            if _numeric(operand):
                raise expected(self._text, start, f"a text after {operator.value}")
        self._sign("]")
        return Predicate(attribute, operator, operand)

    def _operator(self) -> Operator:
        text, position = self._text, self._position
        match = _SIGN.match(text, position)
        table = _SIGNS
        if match is None:
            match = NAME.match(text, position)
            table = _WORDS
        operator = table.get(match.group()) if match else None
        if match is None or operator is None:
            raise expected(text, position, f"an operator ({' '.join((*_SIGNS, *_WORDS))})")
        self._advance(match.end())
        return operator

    # Publications.

    def publication(self, clock: Clock) -> Publication:
        self._open_class()
        class_name = self._text_value("the name of a class")
        self._sign("]")
        attributes: dict[str, Operand] = {}
        named = {"class"}
        while self._sees(","):
            self._sign("[")
            name = self._attribute(named, False)
            self._sign(",")
            attributes[name] = self._operand("a value")
            self._sign("]")
        time = self._time() if self._sees(";") else None
        self._end()
        return Publication(class_name, attributes, time or clock())

    def _time(self) -> datetime | None:
        text, start = self._text, self._position
        if start == len(text):
            return None
        semicolon = text.find(";", start)
        end = len(text) if semicolon < 0 else semicolon
        stop = start + len(text[start:end].rstrip(" \t\r\n"))
        time = parse_time(text, start, stop)
        self._advance(end if semicolon < 0 else end + 1)
        return time

    # Composites.

    def composite(self) -> Composite:
        self._sign("{")
        expression = self._expression(1)
        self._sign("}")
        self._end()
        return Composite(expression)

    def _expression(self, depth: int) -> Expression:
        left = self._term(depth)
        while True:
            if self._sees("&"):
                left = Join(Joining.AND, left, self._term(depth))
            elif self._sees("||"):
                left = Join(Joining.OR, left, self._term(depth))
            else:
                return left

    def _term(self, depth: int) -> Expression:
        start = self._position
        self._sign("{")
        if depth == DEPTH:
            raise LanguageError(self._text, start, f"braces nest more than {DEPTH} deep")
        inside: Expression
        if self._text.startswith("{", self._position):
            inside = self._expression(depth + 1)
        else:
            inside = self._filter(Subscription)
            self._parts += 1
            if self._parts > PARTS:
                raise LanguageError(self._text, start, f"more than {PARTS} parts")
        self._sign("}")
        return inside

    # Words and values.

    def _open_class(self) -> None:
        self._sign("[")
        self._word("class")
        self._sign(",")

    def _attribute(self, named: set[str], several: bool) -> str:
        match = NAME.match(self._text, self._position)
        if match is None:
            raise expected(self._text, self._position, "the name of an attribute")
        name = match.group()
        if name in named and (not several or name == "class"):
            raise LanguageError(self._text, self._position, f"attribute {name} is named twice")
        named.add(name)
        self._advance(match.end())
        return name

    def _text_value(self, what: str) -> str:
        start = self._position
        value = self._operand(what)
        if not isinstance(value, str):
            raise expected(self._text, start, what)
        return value

    def _operand(self, what: str) -> Operand:
        text, position = self._text, self._position
        if match := STRING.match(text, position):
            self._advance(match.end())
            return unquoted(match.group())
        if match := NAME.match(text, position):
            self._advance(match.end())
            return match.group()
        if match := VARIABLE.match(text, position):
            self._advance(match.end())
            return Variable(Kind(match[1]), match[2])
        if match := NUMBER.match(text, position):
            number = number_of(match.group(), match["float"] is not None)
            if number is None:
                raise LanguageError(text, position, f"{match.group()[:24]} is out of range")
            self._advance(match.end())
            return number
        if text.startswith(("'", '"'), position):
            raise LanguageError(text, position, "this quote is not closed")
        raise expected(text, position, what)

    def _word(self, word: str) -> None:
        match = NAME.match(self._text, self._position)
        if match is None or match.group() != word:
            raise expected(self._text, self._position, f"'{word}'")
        self._advance(match.end())

    def _sign(self, sign: str) -> None:
        if not self._sees(sign):
            raise expected(self._text, self._position, f"'{sign}'")

    def _sees(self, sign: str) -> bool:
        if self._text.startswith(sign, self._position):
            self._advance(self._position + len(sign))
            return True
        return False

    def _end(self) -> None:
        if self._position < len(self._text):
            raise expected(self._text, self._position, "the end")

    def _advance(self, position: int) -> None:
        self._position = position
        self._skip()

    def _skip(self) -> None:
        match = BLANKS.match(self._text, self._position)
        assert match is not None, "blanks may be none"
        self._position = match.end()


def unquoted(quoted: str) -> str | Variable:
    """What stands between quotes: a text, or a variable."""
    quote, text = quoted[0], quoted[1:-1]
    if quote in text:
        text = text.replace(quote * 2, quote)
    if text[:1] == "$":
        if match := VARIABLE.fullmatch(text):
            return Variable(Kind(match[1]), match[2])
        if text[:2] == "$$":
            return text[1:]
    return text


def number_of(text: str, is_float: bool) -> Number | None:
    """None for what is out of range."""
    if is_float:
        number = float(text)
        return None if isinf(number) else number
    if len(text) > len(str(INT_MIN)):
        return None
    whole = int(text)
    return whole if INT_MIN <= whole <= INT_MAX else None


def _numeric(operand: Operand) -> bool:
    if isinstance(operand, Variable):
        return operand.kind is not Kind.STRING
    return not isinstance(operand, str)
