"""Many filters and publications of the small world, made quickly from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hypothesis import strategies as st

from penstock.content.messages import (
    NUMERIC,
    TEXTUAL,
    Number,
    Operator,
    Predicate,
    Publication,
    Value,
    Variable,
    VariableType,
)
from tests.content.strategies import LETTERS

#: What makes a world, drawn as one number: a large world is drawn as quickly as a small one.
seeds = st.integers(0, 2**32).map(Random)

_NUMBERS: tuple[Number, ...] = (
    *(-2, -1, 0, 1, 2, 3, -1.5, -0.0, 0.5, 1.0, 1.5, 2.0),
    *(2**53, 2**53 + 1, float(2**53), 2**53 + 2, 2**63 - 1, -(2**63)),
)


def _text(random: Random) -> str:
    return "".join(random.choices(LETTERS, k=random.randint(0, 3)))


def _predicate(random: Random) -> Predicate:
    name = random.choice("abc")
    textual = random.random() < 0.5
    operator = random.choice((*(TEXTUAL if textual else NUMERIC), Operator.PRESENT))
    if random.random() < 0.15:
        kinds = (VariableType.STRING,) if textual else (VariableType.INTEGER, VariableType.FLOAT)
        return Predicate(name, operator, Variable(random.choice(kinds), random.choice("xy")))
    return Predicate(name, operator, _text(random) if textual else random.choice(_NUMBERS))


def filters(random: Random, count: int) -> Iterator[tuple[Predicate, ...]]:
    for _ in range(count):
        yield tuple(_predicate(random) for _ in range(random.randint(0, 3)))


def ranges(random: Random, count: int) -> Iterator[tuple[Predicate, ...]]:
    """Filters that ask for ranges of numbers and nothing else."""
    for _ in range(count):
        yield tuple(
            Predicate(name, random.choice(NUMERIC[2:]), random.choice(_NUMBERS[:12]))
            for name in random.choices("abc", k=random.randint(1, 3))
        )


def narrow(random: Random, count: int) -> Iterator[tuple[Predicate, ...]]:
    """Filters that ask for narrow ranges, of any size from the tiniest to the largest numbers."""
    for _ in range(count):
        scale = 2.0 ** random.choice((-1060, -40, 0, 3, 60, 1000))
        low = random.choice((0, 1, -1)) * scale * random.random()
        high = low + scale * random.choice((0, 2**-52, 0.001, 0.01))
        yield (
            Predicate("a", Operator.GREATER_EQUAL, low),
            Predicate("a", random.choice((Operator.LESS, Operator.LESS_EQUAL)), high),
            *(_predicate(random) for _ in range(random.randint(0, 1))),
        )


def happenings(random: Random, count: int) -> Iterator[Publication]:
    for _ in range(count):
        held: dict[str, Value] = {}
        for name in random.sample("abcd", random.randint(0, 4)):
            held[name] = _text(random) if random.random() < 0.5 else random.choice(_NUMBERS)
        yield Publication("k", held)
