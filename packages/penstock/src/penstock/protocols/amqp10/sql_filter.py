"""SQL filter expressions (`amqp:sql-filter`): a condition on the sections of a message.

    properties.subject LIKE 'order.%' AND (region = 'EU' OR header.priority > 4)

An identifier is an application property, or with a prefix a field of a section: `header.` or `h.`,
`properties.` or `p.`, `application_properties.` or `a.`. Brackets delimit other names:
`[content type]`. Operators, from the weakest: OR; AND; NOT; `=`, `<>`, `!=`, `<`, `<=`, `>`, `>=`,
[NOT] LIKE … [ESCAPE …], [NOT] IN (…), IS [NOT] NULL; `+`, `-`; `*`, `/`, `%`; signs. Literals are
texts in single quotes, numbers, binary data (`0xFF00`), TRUE and FALSE; `UTC()` is the current time
in milliseconds. Keywords are case-insensitive, names are not.

A condition is true, false or unknown (None). A field that a message does not have is unknown, and
so is a result of operands that do not fit: arithmetic with texts, a division by zero. Values of
different types are not equal, and none is less than the other. A message is selected if the
condition is true.

The size of an expression and of a pattern is limited, and LIKE tries nothing twice, so that an
expression cannot make a message expensive.
"""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import PreconditionFailed

MAX_EXPRESSION_CHARACTERS: Final = 4096
MAX_TOKENS: Final = 400
MAX_DEPTH: Final = 50
MAX_PATTERN_CHARACTERS: Final = 256

#: Sections of a message, by the prefix of an identifier.
_SECTIONS: Final = {
    "header": "header",
    "h": "header",
    "properties": "properties",
    "p": "properties",
    "application_properties": "application",
    "application-properties": "application",
    "a": "application",
}
_HEADER_FIELDS: Final = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
_PROPERTY_FIELDS: Final = (
    *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type"),
    *("content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence"),
    "reply_to_group_id",
)

_NAME: Final = r"[A-Za-z_$][A-Za-z0-9_$]*"
#: Fields of the standard may be written with hyphens, as the standard names them.
_HYPHENATED: Final = "|".join(
    name.replace("_", "-")
    for name in sorted((*_HEADER_FIELDS, *_PROPERTY_FIELDS), key=len, reverse=True)
    if "_" in name
)
_TOKEN: Final = re.compile(
    rf"""\s*(?:
        (?P<binary>0[xX](?:[0-9A-Fa-f]{{2}})*)(?![A-Za-z0-9_$])
      | (?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_$])
      | (?P<text>'(?:[^']|'')*')
      | (?P<field>(?:header|h|properties|p)\.(?:{_HYPHENATED})(?![A-Za-z0-9_$]))
      | (?P<bracket>(?:(?:{_NAME})\.)?\[(?:[^\[\]]|\[\[|\]\])+\])
      | (?P<word>{_NAME}(?:\.{_NAME})?)
      | (?P<operator><>|!=|<=|>=|[=<>+\-*/%(),])
    )""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "TRUE", "FALSE", "UTC")
)


@dataclass(slots=True)
class MessageFields:
    """What an expression can see of a message."""

    header: Mapping[str, Any]  #: fields by name, with underscores
    properties: Mapping[str, Any]
    application: Mapping[str, Any]


#: An expression: its value for a message; None is unknown.
Expression = Callable[[MessageFields], Any]


class SqlFilter:
    def __init__(self, text: str) -> None:
        """Raises `PreconditionFailed` for an invalid expression, with the position."""
        if len(text) > MAX_EXPRESSION_CHARACTERS:
            raise PreconditionFailed(
                f"the expression is longer than {MAX_EXPRESSION_CHARACTERS} characters"
            )
        self._condition = _Parser(text).parse()

    def __call__(self, fields: MessageFields) -> bool:
        return self._condition(fields) is True


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    value: Any
    at: int


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None or match.lastgroup is None:
            shown = stripped[at : at + 20]
            raise PreconditionFailed(f"unexpected text at position {at}: {shown!r}")
        found.append(_token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
        if len(found) > MAX_TOKENS:
            raise PreconditionFailed(f"the expression has more than {MAX_TOKENS} parts")
    return [*found, _Token("end", None, len(stripped))]


def _token(kind: str, text: str, at: int) -> _Token:
    if kind == "binary":
        return _Token("literal", bytes.fromhex(text[2:]), at)
    if kind == "number":
        value: Any = float(text) if re.search("[.eE]", text) else int(text)
        return _Token("literal", value, at)
    if kind == "text":
        return _Token("literal", text[1:-1].replace("''", "'"), at)
    if kind == "word" and text.upper() in _KEYWORDS:
        return _Token("keyword", text.upper(), at)
    if kind == "bracket":
        section, _, name = text.partition("[")
        name = name[:-1].replace("[[", "[").replace("]]", "]")
        return _Token("name", (section.rstrip(".") or "a", name), at)
    if kind in ("word", "field"):
        section, dot, name = text.partition(".")
        return _Token("name", (section, name) if dot else ("a", section), at)
    return _Token("operator", text, at)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Expression:
        expression = self._or()
        if self._next.kind != "end":
            raise self._unexpected()
        return expression

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _unexpected(self) -> PreconditionFailed:
        token = self._next
        what = "the end" if token.kind == "end" else repr(token.value)
        return PreconditionFailed(f"unexpected {what} at position {token.at}")

    def _take(self, kind: str, *values: str) -> str | None:
        """The next token's value, if it is one of these."""
        token = self._next
        if token.kind == kind and token.value in values:
            self._at += 1
            return str(token.value)
        return None

    def _expect(self, kind: str, value: str) -> None:
        if self._take(kind, value) is None:
            raise self._unexpected()

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PreconditionFailed(f"the expression is nested deeper than {MAX_DEPTH} levels")

    # Conditions.

    def _or(self) -> Expression:
        terms = [self._and()]
        while self._take("keyword", "OR"):
            terms.append(self._and())
        return terms[0] if len(terms) == 1 else lambda fields: _any(terms, fields)

    def _and(self) -> Expression:
        terms = [self._not()]
        while self._take("keyword", "AND"):
            terms.append(self._not())
        return terms[0] if len(terms) == 1 else lambda fields: _all(terms, fields)

    def _not(self) -> Expression:
        if not self._take("keyword", "NOT"):
            return self._comparison()
        self._enter()
        term = self._not()
        self._depth -= 1
        return lambda fields: _negate(term(fields))

    def _comparison(self) -> Expression:
        left = self._sum()
        comparison = self._take("operator", *_COMPARISONS)
        if comparison is not None:
            compare, right = _COMPARISONS[comparison], self._sum()
            return lambda fields: _compare(compare, left(fields), right(fields))
        if self._take("keyword", "IS"):
            negated = self._take("keyword", "NOT") is not None
            self._expect("keyword", "NULL")
            return lambda fields: (left(fields) is None) is not negated
        negated = self._take("keyword", "NOT") is not None
        if self._take("keyword", "LIKE"):
            test = self._like(left)
        elif self._take("keyword", "IN"):
            test = self._in(left)
        elif negated:
            raise self._unexpected()
        else:
            return left
        return (lambda fields: _negate(test(fields))) if negated else test

    def _text(self) -> str:
        token = self._next
        if token.kind != "literal" or not isinstance(token.value, str):
            raise PreconditionFailed(f"a text in quotes is expected at position {token.at}")
        self._at += 1
        return token.value

    def _like(self, left: Expression) -> Expression:
        pattern = self._text()
        escape = ""
        if self._take("keyword", "ESCAPE"):
            at = self._next.at
            escape = self._text()
            if len(escape) != 1:
                raise PreconditionFailed(f"ESCAPE needs one character at position {at}")
        matches = LikePattern(pattern, escape)

        def test(fields: MessageFields) -> bool | None:
            value = left(fields)
            return matches(value) if isinstance(value, str) else None

        return test

    def _in(self, left: Expression) -> Expression:
        self._expect("operator", "(")
        choices = [self._sum()]
        while self._take("operator", ","):
            choices.append(self._sum())
        self._expect("operator", ")")
        equal = _COMPARISONS["="]

        def test(fields: MessageFields) -> bool | None:
            value = left(fields)
            found = [_compare(equal, value, choice(fields)) for choice in choices]
            return True if True in found else None if None in found else False

        return test

    # Values.

    def _sum(self) -> Expression:
        left = self._product()
        while (sign := self._take("operator", "+", "-")) is not None:
            left = _arithmetic(_ARITHMETIC[sign], left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._unary()
        while (sign := self._take("operator", "*", "/", "%")) is not None:
            left = _arithmetic(_ARITHMETIC[sign], left, self._unary())
        return left

    def _unary(self) -> Expression:
        sign = self._take("operator", "+", "-")
        if sign is None:
            return self._primary()
        self._enter()
        operand = self._unary()
        self._depth -= 1
        zero = _constant(0)
        return _arithmetic(_ARITHMETIC[sign], zero, operand)

    def _primary(self) -> Expression:
        token = self._next
        self._at += 1
        if token.kind == "literal":
            return _constant(token.value)
        if token.kind == "name":
            return self._field(token)
        if token.kind == "keyword" and token.value in ("TRUE", "FALSE"):
            return _constant(token.value == "TRUE")
        if token.kind == "keyword" and token.value == "UTC":
            self._expect("operator", "(")
            self._expect("operator", ")")
            return lambda fields: int(time.time() * 1000)
        if token.kind == "operator" and token.value == "(":
            self._enter()
            inner = self._or()
            self._depth -= 1
            self._expect("operator", ")")
            return inner
        self._at -= 1
        raise self._unexpected()

    def _field(self, token: _Token) -> Expression:
        prefix, name = token.value
        section = _SECTIONS.get(prefix)
        known = name.replace("-", "_")
        if section == "header" and known in _HEADER_FIELDS:
            return lambda fields: fields.header.get(known)
        if section == "properties" and known in _PROPERTY_FIELDS:
            return lambda fields: fields.properties.get(known)
        if section == "application":
            return lambda fields: fields.application.get(name)
        raise PreconditionFailed(f"unknown field '{prefix}.{name}' at position {token.at}")


def _constant(value: Any) -> Expression:
    return lambda fields: value


def _negate(value: Any) -> bool | None:
    return not value if isinstance(value, bool) else None


def _any(terms: list[Expression], fields: MessageFields) -> bool | None:
    unknown = False
    for term in terms:
        value = term(fields)
        if value is True:
            return True
        unknown |= value is not False
    return None if unknown else False


def _all(terms: list[Expression], fields: MessageFields) -> bool | None:
    unknown = False
    for term in terms:
        value = term(fields)
        if value is False:
            return False
        unknown |= value is not True
    return None if unknown else True


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _kind(value: Any) -> type | None:
    """The type within which values can be compared."""
    if isinstance(value, bool):
        return bool
    for kind in (str, bytes):
        if isinstance(value, kind):
            return kind
    return float if isinstance(value, int | float) else None


def _compare(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool | None:
    kind = _kind(left)
    if kind is None or _kind(right) is None:
        return None
    if kind is not _kind(right):  # they are not equal, and have no order
        return compare is operator.ne
    return compare(left, right)


def _divide(left: Any, right: Any) -> Any:
    """Of whole numbers a whole number, as in SQL."""
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": lambda left, right: (
        left - right * _divide(left, right)
        if isinstance(left, int) and isinstance(right, int)
        else math.fmod(left, right)
    ),
}


def _arithmetic(
    operate: Callable[[Any, Any], Any], left: Expression, right: Expression
) -> Expression:
    def value(fields: MessageFields) -> Any:
        one, other = left(fields), right(fields)
        if _kind(one) is not float or _kind(other) is not float:
            return None
        try:
            return operate(one, other)
        except (ArithmeticError, ValueError):
            return None

    return value


class LikePattern:
    """`%` matches any text, `_` any character.

    Between two `%` the pattern has a fixed length. The leftmost match of each such part is the
    right one, so nothing is tried twice.
    """

    __slots__ = ("_parts",)

    def __init__(self, pattern: str, escape: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise PreconditionFailed(
                f"the pattern of LIKE is longer than {MAX_PATTERN_CHARACTERS} characters"
            )
        parts: list[list[str]] = [[]]
        characters = iter(pattern)
        for character in characters:
            if escape and character == escape:
                literal = next(characters, "")
                if not literal or literal not in ("%", "_", escape):
                    raise PreconditionFailed(f"ESCAPE {escape!r} before {literal!r} in LIKE")
                parts[-1].append(re.escape(literal))
            elif character == "%":
                parts.append([])
            else:
                parts[-1].append("." if character == "_" else re.escape(character))
        #: The expressions between `%`, with their lengths.
        self._parts = [(re.compile("".join(part), re.DOTALL), len(part)) for part in parts]

    def __call__(self, text: str) -> bool:
        (first, size), *others = self._parts
        if not others:
            return first.fullmatch(text) is not None
        if first.match(text) is None:
            return False
        *middle, (last, last_size) = others
        at, end = size, len(text) - last_size
        for part, _ in middle:
            found = part.search(text, at, max(at, end))
            if found is None:
                return False
            at = found.end()
        return at <= end and last.fullmatch(text, end) is not None
