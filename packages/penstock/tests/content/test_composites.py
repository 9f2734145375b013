"""Composite subscriptions: what completes a match, what counts again, and what is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.bindings import Bindings, bind
from penstock.content.composite import CompositeMatcher, ConsumptionPolicy, RetentionLimit
from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.messages import (
    CompositeSubscription,
    Expression,
    Join,
    JoinOperator,
    Publication,
)
from penstock.content.parser import parse_composite, parse_publication
from tests.content.strategies import expressions, publications, subscriptions

Found = list[list[tuple[Publication, ...]]]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def letters(text: str) -> str:
    """Parts by letters: A is the class A."""
    for letter in "ABCD":
        text = text.replace(letter, f"[class,eq,{letter}]")
    return text


def play(
    composite: str,
    sent: str,
    policy: ConsumptionPolicy = ConsumptionPolicy.REMAIN,
    bound: RetentionLimit | None = None,
    step: float = 1.0,
) -> list[list[str]]:
    """Publish words, one a second; for each, the matches it completes, as words in order.

    A word is a class, and what its attributes x, y hold: `A:1,p`.
    """
    clock = Clock()
    engine: CompositeMatcher[str] = CompositeMatcher(clock=clock)
    engine.insert("c", parse_composite(letters(composite)), policy, bound or RetentionLimit())
    names: dict[int, str] = {}
    answers = []
    kept = []
    for word in sent.split():
        class_name, _, held = word.partition(":")
        pairs = [f",[{name},{value}]" for name, value in zip("xy", held.split(","), strict=False)]
        publication = parse_publication(f"[class,{class_name}]{''.join(pairs) if held else ''};")
        kept.append(publication)
        names[id(publication)] = word
        found = engine.match(publication).get("c", [])
        answers.append([" ".join(names[id(one)] for one in match) for match in found])
        clock.now += step
    return answers


@pytest.mark.parametrize(
    ("composite", "sent", "answers"),
    [
        ("{{A}&{B}}", "A B", [[], ["A B"]]),
        ("{{A}&{B}}", "B A", [[], ["B A"]]),
        ("{{A}||{B}}", "A B", [["A"], ["B"]]),
        ("{{A}&{B}&{C}}", "C B A", [[], [], ["C B A"]]),
        ("{{A}&{B}||{C}}", "C A B", [["C"], [], ["A B"]]),
        ("{{{A}||{B}}&{C}}", "B C A", [[], ["B C"], ["C A"]]),
        ("{{A}&{{B}||{C}}}", "A C", [[], ["A C"]]),
        ("{{A}&{{B}||{C}}}", "C", [[]]),
        ("{{{A}||{B}}&{{C}||{D}}}", "B D A", [[], ["B D"], ["D A"]]),
        ("{{A}||{{B}&{C}}}", "B A C", [[], ["A"], ["B C"]]),
        ("{{A}}", "A", [["A"]]),
    ],
)
def test_trees_of_both_and_either(composite: str, sent: str, answers: list[list[str]]) -> None:
    assert play(composite, sent) == answers


def test_a_publication_that_satisfies_both_sides_is_a_match_by_itself() -> None:
    assert play("{{A}&{A}}", "A") == [["A"]]


@pytest.mark.parametrize(
    ("composite", "sent", "answers"),
    [
        (
            "{{A,[x,eq,$S$v]}&{B,[x,eq,$S$v]}}",
            "A:p A:q B:q",
            [[], [], ["A:q B:q"]],
        ),
        ("{{A,[x,=,$I$v]}&{B,[x,=,$I$v]}}", "A:1 B:2 B:1", [[], [], ["A:1 B:1"]]),
        ("{{A,[x,=,$F$v]}&{B,[x,=,$F$v]}}", "A:1 B:1.0", [[], ["A:1 B:1.0"]]),
        (
            "{{A,[x,eq,$S$v]}&{B,[x,eq,$S$v],[y,eq,$S$w]}&{C,[x,eq,$S$w]}}",
            "A:p B:p,q C:p C:q",
            [[], [], [], ["A:p B:p,q C:q"]],
        ),
        # Only one of two alternatives binds it: the other goes with any.
        (
            "{{{A,[x,eq,$S$v]}||{D}}&{B,[x,eq,$S$v]}}",
            "A:p D B:q",
            [[], [], ["D B:q"]],
        ),
        ("{{A,[x,=,$F$v]}&{B,[x,>,$F$v]}}", "A:5 B:5 B:6", [[], [], ["A:5 B:6"]]),
        ("{{B,[x,>,$F$v]}&{A,[x,=,$F$v]}}", "B:6 A:6 A:5", [[], [], ["B:6 A:5"]]),
    ],
)
def test_variables_across_parts(composite: str, sent: str, answers: list[list[str]]) -> None:
    assert play(composite, sent) == answers


def test_what_remains_counts_with_every_partner() -> None:
    assert play("{{A}&{B}}", "A:1 B:2 B:3") == [[], ["A:1 B:2"], ["A:1 B:3"]]


def test_what_counts_once_is_used_up_oldest_first() -> None:
    answers = play("{{A}&{B}}", "A:1 A:2 B:3 B:4 B:5", ConsumptionPolicy.ONCE)

    assert answers == [[], [], ["A:1 B:3"], ["A:2 B:4"], []]


def test_the_most_recent_takes_the_place_of_what_was() -> None:
    answers = play("{{A}&{B}}", "A:1 A:2 B:3 B:4", ConsumptionPolicy.RECENT)

    assert answers == [[], [], ["A:2 B:3"], ["A:2 B:4"]]


def test_the_most_recent_is_so_for_each_value_of_a_variable() -> None:
    composite = "{{A,[x,eq,$S$v]}&{B,[x,eq,$S$v]}}"

    answers = play(composite, "A:p,1 A:q,2 A:p,3 B:p B:q", ConsumptionPolicy.RECENT)

    assert answers == [[], [], [], ["A:p,3 B:p"], ["A:q,2 B:q"]]


def test_publications_too_far_apart_are_no_match() -> None:
    answers = play("{{A}&{B}}", "A:1 C C A:4 B:5", bound=RetentionLimit(seconds=2))

    assert answers == [[], [], [], [], ["A:4 B:5"]]


def test_the_first_and_the_last_of_a_match_are_within_the_time() -> None:
    answers = play("{{A}&{B}&{C}}", "A:1 B:2 C:3 D D B:6 C:7", bound=RetentionLimit(seconds=2))

    assert answers == [[], [], ["A:1 B:2 C:3"], [], [], [], []]


def test_the_oldest_is_forgotten_for_the_newest() -> None:
    answers = play("{{A}&{B}}", "A:1 A:2 A:3 B", bound=RetentionLimit(size=2))

    assert answers == [[], [], [], ["A:2 B", "A:3 B"]]


@pytest.mark.parametrize("policy", ConsumptionPolicy)
def test_memory_is_bounded(policy: ConsumptionPolicy) -> None:
    engine: CompositeMatcher[str] = CompositeMatcher()
    engine.insert("c", parse_composite(letters("{{A}&{B}&{C}}")), policy, RetentionLimit(size=10))

    for _ in range(50):
        for letter in "AB":
            engine.match(Publication(letter, {}))

    assert engine.remembered("c") <= 40


def test_what_is_removed_is_forgotten() -> None:
    engine: CompositeMatcher[str] = CompositeMatcher()
    composite = parse_composite(letters("{{A}&{B}}"))
    engine.insert("c", composite)
    engine.match(Publication("A", {}))
    engine.remove("c")
    engine.insert("c", composite)

    assert engine.match(Publication("B", {})) == {}
    with pytest.raises(DuplicateId):
        engine.insert("c", composite)
    with pytest.raises(UnknownId):
        engine.remove("d")


def everything(
    node: Expression, history: list[Publication]
) -> Iterator[tuple[frozenset[int], Bindings]]:
    """All that satisfies an expression in a history, by its definition."""
    if not isinstance(node, Join):
        for number, publication in enumerate(history):
            if publication.class_name == node.class_name:
                bindings = bind(node.predicates, publication.attributes)
                if bindings is not None:
                    yield frozenset((number,)), bindings
    elif node.joining is JoinOperator.OR:
        yield from everything(node.left, history)
        yield from everything(node.right, history)
    else:
        rights = list(everything(node.right, history))
        for left, mine in everything(node.left, history):
            for right, others in rights:
                merged = mine.merge(others)
                if merged is not None:
                    yield left | right, merged


@settings(max_examples=100)
@given(
    expressions(subscriptions(several=False), most=4),
    st.lists(publications(), min_size=1, max_size=6),
)
def test_all_matches_are_found_as_they_complete(
    expression: Expression, sent: list[Publication]
) -> None:
    engine: CompositeMatcher[str] = CompositeMatcher()
    engine.insert("c", CompositeSubscription(expression), bound=RetentionLimit(size=10_000))
    for number, publication in enumerate(sent):
        copy = Publication(publication.class_name, publication.attributes, payload=number)
        found = engine.match(copy).get("c", [])

        complete = everything(expression, sent[: number + 1])
        wanted = {members for members, _ in complete if number in members}
        assert {frozenset(one.payload for one in match) for match in found} == wanted
        assert len(found) == len(wanted)
