"""The parser of the content language, whose reference is `grammar.lark`.

A strict recursive descent; errors name the position and what was expected. `parse_publication` has
a fast path for plainly written publications and leaves everything else to the strict parser, so
both accept the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from math import isinf
from typing import Final, TypeVar

from penstock.content.errors import LanguageError, expected
from penstock.content.messages import (
    INT_MAX,
    INT_MIN,
    NUMERIC,
    TEXTUAL,
    Advertisement,
    CompositeSubscription,
    Expression,
    Join,
    JoinOperator,
    Number,
    Operand,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Variable,
    VariableType,
)

Clock = Callable[[], datetime]
F = TypeVar("F", Subscription, Advertisement)

#: Limits of composites: nesting of braces, and parts.
MAX_DEPTH: Final = 64
MAX_PARTS: Final = 256

WHITESPACE: Final = re.compile(r"[ \t\r\n]*")
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
    """`several` allows several predicates on one attribute, such as a range."""
    return _Parser(text, several).whole_filter(Subscription)


def parse_advertisement(text: str, *, several: bool = False) -> Advertisement:
    return _Parser(text, several).whole_filter(Advertisement)


def parse_composite(text: str, *, several: bool = False) -> CompositeSubscription:
    return _Parser(text, several).composite()


def parse_any_subscription(
    text: str, *, several: bool = False
) -> Subscription | CompositeSubscription:
    """A composite subscription is in braces."""
    if text.lstrip().startswith("{"):
        return parse_composite(text)
    return parse_subscription(text, several=several)


def parse_publication_by_grammar(text: str, clock: Clock = now) -> Publication:
    """The strict parser. A publication without a time gets that of the clock."""
    return _Parser(text, False).publication(clock)


class _Parser:
    __slots__ = ("_parts", "_position", "_several", "_text")

    def __init__(self, text: str, several: bool) -> None:
        self._text = text
        self._several = several
        self._parts = 0
        self._position = 0
        self._skip()

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
        self._sees(";")  # optional, without meaning
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

    def composite(self) -> CompositeSubscription:
        self._sign("{")
        expression = self._expression(1)
        self._sign("}")
        self._end()
        return CompositeSubscription(expression)

    def _expression(self, depth: int) -> Expression:
        left = self._term(depth)
        while True:
            if self._sees("&"):
                left = Join(JoinOperator.AND, left, self._term(depth))
            elif self._sees("||"):
                left = Join(JoinOperator.OR, left, self._term(depth))
            else:
                return left

    def _term(self, depth: int) -> Expression:
        start = self._position
        self._sign("{")
        if depth == MAX_DEPTH:
            raise LanguageError(self._text, start, f"braces nest more than {MAX_DEPTH} deep")
        inside: Expression
        if self._text.startswith("{", self._position):
            inside = self._expression(depth + 1)
        else:
            inside = self._filter(Subscription)
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise LanguageError(self._text, start, f"more than {MAX_PARTS} parts")
        self._sign("}")
        return inside

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
            return Variable(VariableType(match[1]), match[2])
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
        match = WHITESPACE.match(self._text, self._position)
        assert match is not None, "it matches the empty text"
        self._position = match.end()


def unquoted(quoted: str) -> str | Variable:
    """The content of a quoted text: text, or a variable."""
    quote, text = quoted[0], quoted[1:-1]
    if quote in text:
        text = text.replace(quote * 2, quote)
    if text[:1] == "$":
        if match := VARIABLE.fullmatch(text):
            return Variable(VariableType(match[1]), match[2])
        if text[:2] == "$$":
            return text[1:]
    return text


def number_of(text: str, is_float: bool) -> Number | None:
    """None if it is out of range."""
    if is_float:
        number = float(text)
        return None if isinf(number) else number
    if len(text) > len(str(INT_MIN)):
        return None
    whole = int(text)
    return whole if INT_MIN <= whole <= INT_MAX else None


def _numeric(operand: Operand) -> bool:
    if isinstance(operand, Variable):
        return operand.kind is not VariableType.STRING
    return not isinstance(operand, str)


#: Each pair has four characters besides name and value: if the lengths add up to that of the text,
#: nothing was skipped. Integers have few enough digits to fit.
_PAIRS: Final = re.compile(
    r"""\[([A-Za-z_:/][A-Za-z0-9_:/-]*),("[^"]*"|'[^']*'|[A-Za-z_:/][A-Za-z0-9_:/-]*"""
    r"""|-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,20})?)\](?:,(?=\[)|;\Z)"""
)


class PublicationCache:
    """Parses publications and caches the last one: router and store parse the same text in turn."""

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
        """Cache a publication that was just formatted."""
        self._text, self._publication = text, publication


def parse_publication(text: str, clock: Clock = now) -> Publication:
    """A publication without a time gets that of the clock."""
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
                return parse_publication_by_grammar(text, clock)
            else:
                attributes[name] = int(value)
        else:
            attributes[name] = value
    if not pairs or length != len(body) or len(attributes) != len(pairs):
        return parse_publication_by_grammar(text, clock)
    if pairs[0][0] != "class" or not isinstance(attributes["class"], str):
        return parse_publication_by_grammar(text, clock)
    class_name = attributes.pop("class")
    assert isinstance(class_name, str)
    if rest:
        if len(rest) < 3 or rest[0] != ";" or rest[-1] != ";":
            return parse_publication_by_grammar(text, clock)
        return Publication(class_name, attributes, parse_time(text, len(body), len(text) - 1))
    return Publication(class_name, attributes, clock())


# Times such as `Thu Jun 19 17:14:58 GMT 2008`. A zone is an offset (`GMT+02:00`, `+0200`, `Z`) or a
# common abbreviation. Times are formatted in GMT, to the second.

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_EAST: Final = {
    0: "GMT UTC UT Z WET",
    1: "BST WEST CET",
    2: "CEST EET",
    3: "EEST MSK",
    9: "JST",
    -4: "EDT",
    -5: "EST CDT",
    -6: "CST MDT",
    -7: "MST PDT",
    -8: "PST",
}
#: The range of times, in seconds since 1970: the years 1 to 9999.
EARLIEST_TIMESTAMP: Final = -62_135_596_800
LATEST_TIMESTAMP: Final = 253_402_300_799
ZONES: Final = {name: hours for hours, names in _EAST.items() for name in names.split()}

_TIME: Final = re.compile(
    r"([A-Z][a-z]{2}) +([A-Z][a-z]{2}) +(\d{1,2}) +(\d{2}):(\d{2}):(\d{2}) +"
    r"(?:([A-Z]+)|(?:GMT)?([+-])(\d{2}):?(\d{2})) +(\d{4})",
    re.ASCII,
)


def parse_time(text: str, position: int = 0, end: int | None = None) -> datetime:
    """Parse text[position:end]; errors count positions from the start of the text."""
    match = _TIME.fullmatch(text, position, len(text) if end is None else end)
    if match is None:
        raise expected(text, position, "a time such as Thu Jun 19 17:14:58 GMT 2008")
    day, month, date, hour, minute, second, name, sign, hours, minutes, year = match.groups()
    if name is not None and name not in ZONES:
        raise LanguageError(text, match.start(7), f"unknown time zone {name}; write GMT±hh:mm")
    if month not in MONTHS:
        raise LanguageError(text, match.start(2), f"unknown month {month}")
    east = timedelta(hours=ZONES[name]) if name else timedelta(hours=int(hours))
    east += timedelta(minutes=int(minutes or 0))
    try:
        time = datetime(
            *(int(year), MONTHS.index(month) + 1, int(date)),
            *(int(hour), int(minute), int(second)),
            tzinfo=timezone(-east if sign == "-" else east),
        )
        time_gmt = time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise LanguageError(text, position, f"no such time: {error}") from None
    if DAYS[time.weekday()] != day:
        problem = f"the date is a {DAYS[time.weekday()]}, not a {day}"
        raise LanguageError(text, position, problem)
    return time_gmt


def format_time(time: datetime) -> str:
    gmt = time.astimezone(UTC)
    clock = f"{gmt:%H:%M:%S}"
    return f"{DAYS[gmt.weekday()]} {MONTHS[gmt.month - 1]} {gmt.day:02} {clock} GMT {gmt.year:04}"
