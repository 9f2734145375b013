"""What programs read with is held equal to the reference grammar, on texts right and wrong."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import lark
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.errors import LanguageError
from penstock.content.formatter import format_message
from penstock.content.messages import (
    CompositeSubscription,
    Expression,
    Join,
    JoinOperator,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Variable,
    VariableType,
    is_number,
)
from penstock.content.parser import (
    parse_composite,
    parse_publication,
    parse_publication_by_grammar,
    parse_subscription,
    parse_time,
)
from tests.content.strategies import composites, publications, subscriptions

GRAMMAR = (files("penstock.content") / "grammar.lark").read_text()


class Refused(Exception):
    """What the grammar lets pass and the page does not."""


def scalar(token: lark.Token) -> Any:
    text = str(token)
    if text[0] in "\"'":
        inside = text[1:-1].replace(text[0] * 2, text[0])
        if inside[:3] in ("$S$", "$I$", "$F$") and token.type.endswith("VARIABLE"):
            return Variable(VariableType(inside[1]), inside[3:])
        if token.type == "STRING" and inside[:3] in ("$S$", "$I$", "$F$") and is_name(inside[3:]):
            raise Refused  # a variable of the wrong type, or none is allowed
        return inside[1:] if inside[:2] == "$$" else inside
    if text[0] == "$":
        return Variable(VariableType(text[1]), text[3:])
    if token.type in ("INT", "FLOAT"):
        number = int(text) if token.type == "INT" else float(text)
        if not is_number(number):
            raise Refused
        return number
    return text


def is_name(text: str) -> bool:
    rest = text.replace("-", "_")
    return rest.isascii() and rest.isidentifier()


class Meaning(lark.Transformer[lark.Token, Any]):
    def name(self, children: list[lark.Token]) -> Any:
        return scalar(children[0])

    text = value = number = name

    def textual(self, children: list[Any]) -> Predicate:
        attribute, operator, operand = children
        if isinstance(operand, lark.Token):
            operand = scalar(operand)
        return Predicate(str(attribute), Operator(str(operator)), operand)

    numeric = textual

    def present(self, children: list[Any]) -> Predicate:
        return self.textual([children[0], "isPresent", children[1]])

    def filter(self, children: list[Any]) -> Subscription:
        class_name, *predicates = children
        once({p.attribute for p in predicates}, len(predicates))
        return Subscription(class_name, tuple(predicates))

    def pair(self, children: list[Any]) -> tuple[str, Any]:
        name, value = children
        return str(name), scalar(value) if isinstance(value, lark.Token) else value

    def publication(self, children: list[Any]) -> Publication:
        class_name, *rest = children
        time = None
        if rest and not isinstance(rest[-1], tuple):
            time = parse_time(str(rest.pop()))
        once({name for name, _ in rest}, len(rest))
        return Publication(class_name, dict(rest), time)

    def both(self, children: list[Expression]) -> Join:
        return Join(JoinOperator.AND, *children)

    def either(self, children: list[Expression]) -> Join:
        return Join(JoinOperator.OR, *children)

    def composite(self, children: list[Expression]) -> CompositeSubscription:
        return CompositeSubscription(*children)


def once(names: set[str], count: int) -> None:
    if len(names) != count or "class" in names:
        raise Refused


PARSER = lark.Lark(
    GRAMMAR,
    parser="lalr",
    start=["filter", "publication", "composite"],
    maybe_placeholders=False,
)


def by_the_grammar(start: str, text: str) -> Any:
    """None for what it refuses."""
    try:
        return Meaning().transform(PARSER.parse(text, start=start))
    except (lark.exceptions.UnexpectedInput, LanguageError, Refused):
        return None
    except lark.exceptions.VisitError as error:
        if not isinstance(error.orig_exc, (LanguageError, Refused)):
            raise
        return None


def by_us(reader: Any, text: str) -> Any:
    try:
        return reader(text)
    except LanguageError as error:
        return None if 0 <= error.position <= len(text) else error


SPLINTERS = st.sampled_from(
    [
        *"[],;{}&|'\"$ \n=<>-+.e0179aZ_:/",
        *("class", "eq", "neq", "str-lt", "isPresent", "<=", "<>", "||", "$S$x", "$I$x", "'$F$y'"),
        *("''", "'x'", '"x"', "-0", "007", "1e5", ".5", "1e999", "9223372036854775808", "$$"),
        *("[a,=,1]", ",[a,eq,x]", ",[b,2]", "Thu Jun 19 17:14:58 GMT 2008"),
    ]
)


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """A text of the language in which pieces were lost or came in."""
    text = draw(texts)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 4)))
        text = text[:start] + draw(st.one_of(SPLINTERS, st.just(""))) + text[end:]
    return text


@settings(max_examples=300)
@given(damaged(subscriptions(several=False).map(format_message)))
def test_filters(text: str) -> None:
    assert by_us(parse_subscription, text) == by_the_grammar("filter", text)


@settings(max_examples=300)
@given(damaged(publications().map(format_message)))
def test_publications(text: str) -> None:
    wanted = by_the_grammar("publication", text)
    for reader in (parse_publication, parse_publication_by_grammar):
        found = by_us(reader, text)
        assert found == wanted
        if found is not None and wanted.time is not None:
            assert found.time == wanted.time


@settings(max_examples=150)
@given(damaged(composites.map(format_message)))
def test_composites(text: str) -> None:
    assert by_us(parse_composite, text) == by_the_grammar("composite", text)
