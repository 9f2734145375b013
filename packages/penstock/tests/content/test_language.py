"""Reading the language: what is accepted, what it means, and where mistakes are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.errors import LanguageError
from penstock.content.messages import (
    NUMERIC,
    TEXTUAL,
    Join,
    JoinOperator,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Variable,
    VariableType,
)
from penstock.content.parser import (
    parse_advertisement,
    parse_composite,
    parse_publication,
    parse_subscription,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def one(text: str) -> Predicate:
    (predicate,) = parse_subscription(f"[class,eq,k],[a,{text}]").predicates
    return predicate


def publication(text: str) -> Publication:
    return parse_publication(text, lambda: NOON)


def test_a_subscription_has_a_class_and_predicates() -> None:
    found = parse_subscription("[class,eq,stock],[symbol,eq,'IBM'],[price,<,50]")

    assert found == Subscription(
        "stock",
        (Predicate("symbol", Operator.EQ, "IBM"), Predicate("price", Operator.LESS, 50)),
    )


@pytest.mark.parametrize("text", ["[class,eq,k];", "[class,eq,'k']", ' [ class , eq , "k" ] ; \n'])
def test_blanks_quotes_and_a_last_semicolon_change_nothing(text: str) -> None:
    assert parse_advertisement(text) == parse_advertisement("[class,eq,k]")


@pytest.mark.parametrize("operator", TEXTUAL)
def test_operators_on_texts(operator: Operator) -> None:
    assert one(f"{operator.value},x") == Predicate("a", operator, "x")


@pytest.mark.parametrize("operator", NUMERIC)
def test_operators_on_numbers(operator: Operator) -> None:
    assert one(f"{operator.value},-6.5") == Predicate("a", operator, -6.5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("x", "x"), ("'x'", "x"), ('"x"', "x"), ("''", ""), ("5", 5), ("5.0", 5.0)),
        *(
            ("$S$x", Variable(VariableType.STRING, "x")),
            ("'$I$x'", Variable(VariableType.INTEGER, "x")),
        ),
    ],
)
def test_presence_takes_a_value_of_any_type(text: str, value: object) -> None:
    assert one(f"isPresent,{text}") == ("a", Operator.PRESENT, value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("0", 0), ("7", 7), ("+10", 10), ("-3", -3), ("0.5", 0.5), (".5", 0.5), ("-.5", -0.5)),
        *(("12.25", 12.25), ("1e5", 1e5), ("-1.5E-3", -0.0015), ("9223372036854775807", 2**63 - 1)),
    ],
)
def test_numbers(text: str, number: float) -> None:
    found = one(f"=,{text}").operand

    assert found == number
    assert type(found) is type(number)
    assert publication(f"[class,k],[a,{text}];").attributes == {"a": number}


@pytest.mark.parametrize(
    "text", ["007", "-0", "1.", "+", "0x1", "1e", "1e999", "9223372036854775808", "--1", "1_0"]
)
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(LanguageError):
        one(f"=,{text}")
    with pytest.raises(LanguageError):
        publication(f"[class,k],[a,{text}];")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("'a@b?!()%+*\\'", "a@b?!()%+*\\"), ("'it''s'", "it's"), ('"it\'s"', "it's")),
        *(('"say ""hi"""', 'say "hi"'), ("'$5'", "$5"), ("'$$S$x'", "$S$x"), ("'a;],['", "a;],[")),
        *(("'one\ntwo'", "one\ntwo"), ("'☃'", "☃"), ("/a:b-c_d", "/a:b-c_d"), ("eq", "eq")),
    ],
)
def test_texts(text: str, value: str) -> None:
    assert one(f"eq,{text}").operand == value
    assert publication(f"[class,k],[a,{text}];").attributes == {"a": value}


@pytest.mark.parametrize("text", ["$S$x", "'$S$x'", '"$S$x"'])
def test_a_variable_may_be_quoted(text: str) -> None:
    assert one(f"eq,{text}").operand == Variable(VariableType.STRING, "x")


def test_a_publication_holds_values() -> None:
    found = publication("[class,stock],[symbol,IBM],[price,45.5],[volume,100];")

    assert found == Publication("stock", {"symbol": "IBM", "price": 45.5, "volume": 100})


def test_a_publication_without_a_time_is_stamped() -> None:
    assert publication("[class,k];").time == NOON


@pytest.mark.parametrize("end", ["", ";"])
def test_a_publication_brings_its_time(end: str) -> None:
    found = publication(f"[class,k],[a,1];Thu Jun 19 17:14:58 GMT 2008{end}")

    assert found.time == datetime(2008, 6, 19, 17, 14, 58, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["EDT", "GMT-04:00", "-0400"])
def test_zones_of_times(zone: str) -> None:
    found = publication(f"[class,k];Thu Jun 19 17:14:58 {zone} 2008;")

    assert found.time == datetime(2008, 6, 19, 21, 14, 58, tzinfo=UTC)


A, B, C, D = (parse_subscription(f"[class,eq,{name}]") for name in "ABCD")


def tree(text: str) -> object:
    for name in "ABCD":
        text = text.replace(name, f"[class,eq,{name}]")
    return parse_composite(text).expression


def test_unbraced_runs_bind_from_the_left() -> None:
    both = Join(JoinOperator.AND, A, B)

    assert tree("{{A}&{B}||{C}}") == Join(JoinOperator.OR, both, C)


def test_braces_are_honoured() -> None:
    assert tree("{{A}&{{B}||{C}}}") == Join(JoinOperator.AND, A, Join(JoinOperator.OR, B, C))
    assert tree("{{{A}||{B}}&{{C}||{D}}}") == Join(
        JoinOperator.AND, Join(JoinOperator.OR, A, B), Join(JoinOperator.OR, C, D)
    )


def test_one_part_alone_is_a_composite() -> None:
    assert tree("{{A}}") == A


def test_an_attribute_may_have_several_predicates_where_that_is_wanted() -> None:
    found = parse_subscription("[class,eq,k],[a,>,1],[a,<,5]", several=True)

    assert len(found.predicates) == 2


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "expected '[', found the end"),
        ("[price,>,5]", 2, "expected 'class'"),
        ("[class,neq,x]", 8, "expected 'eq', found 'neq,x]'"),
        ("[class,eq,5]", 11, "expected the name of a class"),
        ("[class,eq,x],[price,eq,60]", 24, "expected a text after eq, found '60]'"),
        ("[class,eq,x],[name,=,'x']", 22, "expected a number after ="),
        ("[class,eq,x],[name,=,$S$v]", 22, "expected a number after ="),
        ("[class,eq,x],[name,eq,$I$v]", 23, "expected a text after eq"),
        ("[class,eq,x],[price,]", 21, "expected an operator"),
        ("[class,eq,x],[price,>]", 22, "expected ','"),
        ("[class,eq,x],[price,>,]", 23, "expected a number"),
        ("[class,eq,x],[price>,5]", 20, "expected ','"),
        ("[class,eq,x],[,>,5]", 15, "expected the name of an attribute"),
        ("[class,eq,x][price,>,5]", 13, "expected the end"),
        ("[class,eq,x],[price,>,5", 24, "expected ']', found the end"),
        ("[class,eq,x],[a,eq,'open]", 20, "this quote is not closed"),
        ("[class,eq,x],[a,>,1],[a,<,5]", 23, "attribute a is named twice"),
        ("[class,eq,x],[class,eq,y]", 15, "attribute class is named twice"),
        ("[class,eq,x],[a,before,5]", 17, "expected an operator"),
        ("[class,eq,x],\n[a,=,b]", 6, "line 2, column 6: expected a number"),
    ],
)
def test_a_mistake_is_named_with_its_position(text: str, column: int, problem: str) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_subscription(text)

    assert caught.value.column == column
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        *(("[class,x],[n,];", 14), ("[class,x],[n,'a'],[n,'b'];", 20), ("[class,x][n,1];", 10)),
        *(("[n,1];", 2), ("[class,5];", 8), ("[class,x];yesterday;", 11)),
        *(("[class,x];Fri Jun 19 17:14:58 GMT 2008;", 11), ("[class,x];;", 11)),
        *(("[class,x];Thu Jun 19 17:14:58 XYZ 2008;", 31), ("[class,x];Sun Jun 31 1:1:1 Z 1;", 11)),
    ],
)
def test_a_mistake_in_a_publication_is_named_with_its_position(text: str, column: int) -> None:
    with pytest.raises(LanguageError) as caught:
        publication(text)

    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("{[class,eq,A]}&{[class,eq,B]}", 2),
        ("{{[class,eq,A]}&}", 17),
        ("{{[class,eq,A]}|{[class,eq,B]}}", 16),
        ("{{[class,eq,A]}", 16),
        ("{{[class,eq,A],[x,=,y]}}", 21),
    ],
)
def test_a_mistake_in_a_composite_is_named_with_its_position(text: str, column: int) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_composite(text)

    assert caught.value.column == column


def test_nothing_nests_too_deep_to_say_so() -> None:
    with pytest.raises(LanguageError, match="64 deep"):
        parse_composite("{" * 100_000)


def test_a_composite_has_so_many_parts_and_no_more() -> None:
    run = "&".join(["{[class,eq,A]}"] * 257)

    with pytest.raises(LanguageError, match="more than 256 parts"):
        parse_composite(f"{{{run}}}")


@given(st.text(st.sampled_from("[]{},;&|'\"$ SIFxclasqe=<>-+.019\n\0☃")))
def test_whatever_is_wrong_is_a_mistake_at_a_position(text: str) -> None:
    for read in (parse_subscription, parse_composite, parse_publication):
        try:
            read(text)
        except LanguageError as mistake:
            position = mistake.position
        else:
            position = 0
        assert 0 <= position <= len(text)
