"""The workloads: stock quotes with an equality (W1), and ranges alone (W2).

W1: nine of ten subscriptions ask for one of a thousand symbols and have one to three ranges beside,
each true of 30 to 90 % of the quotes; the tenth has a range true of 1 % in place of the symbol. W2
has two to four ranges, each true of 5 to 50 %. A range has two ends. Quotes have eight attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from penstock.content.messages import Operator, Predicate, Publication, Subscription

SYMBOLS: Final = tuple(f"S{number:03}" for number in range(1000))
#: Attributes that are asked for ranges; each is even between 0 and 1000.
RANGED: Final = ("price", "volume", "high", "low", "change")
_TOP: Final = 1000.0

Make = Callable[[Random], Subscription]


def _range(random: Random, attribute: str, share: float) -> tuple[Predicate, Predicate]:
    start = random.uniform(0, _TOP * (1 - share))
    return (
        Predicate(attribute, Operator.GREATER_EQUAL, round(start, 3)),
        Predicate(attribute, Operator.LESS, round(start + _TOP * share, 3)),
    )


def quotes_wanted(random: Random) -> Subscription:
    """W1."""
    predicates: list[Predicate] = []
    attributes = random.sample(RANGED, random.randint(1, 3) + 1)
    first = attributes.pop()
    if random.random() < 0.9:
        predicates.append(Predicate("symbol", Operator.EQ, random.choice(SYMBOLS)))
    else:
        predicates += _range(random, first, 0.01)
    for attribute in attributes:
        predicates += _range(random, attribute, random.uniform(0.3, 0.9))
    return Subscription("stock", tuple(predicates))


def ranges_wanted(random: Random) -> Subscription:
    """W2."""
    predicates: list[Predicate] = []
    for attribute in random.sample(RANGED, random.randint(2, 4)):
        predicates += _range(random, attribute, random.uniform(0.05, 0.5))
    return Subscription("stock", tuple(predicates))


def equalities_wanted(random: Random) -> Subscription:
    """What a headers exchange can express: three equalities."""
    return Subscription(
        "stock",
        (
            Predicate("symbol", Operator.EQ, random.choice(SYMBOLS)),
            Predicate("exchange", Operator.EQ, random.choice(EXCHANGES)),
            Predicate("board", Operator.EQ, random.choice(BOARDS)),
        ),
    )


EXCHANGES: Final = ("NYSE", "TSX", "LSE", "XETRA")
BOARDS: Final = ("main", "venture")
WORKLOADS: Final[dict[str, Make]] = {"W1": quotes_wanted, "W2": ranges_wanted}


def quotes(random: Random) -> Iterator[Publication]:
    while True:
        attributes: dict[str, str | float] = {
            name: round(random.uniform(0, _TOP), 3) for name in RANGED
        }
        yield Publication(
            "stock",
            {
                "symbol": random.choice(SYMBOLS),
                **attributes,
                "exchange": random.choice(EXCHANGES),
                "board": random.choice(BOARDS),
            },
        )
