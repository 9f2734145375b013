"""Every operator in an advertisement against every operator in a subscription, a broker apart.

What is published lies below, at and above the bounds. What the advertisement does not allow is
refused; of the rest the subscriber gets what satisfies the subscription, and nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.core.errors import NotAdvertised
from tests.overlay.simulation import Overlay
from tests.overlay.stages import Stages

Holds = Callable[[Any, Any], bool]

NUMBERS: dict[str, Holds] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "isPresent": lambda value, operand: True,
}
TEXTS: dict[str, Holds] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "str-lt": operator.lt,
    "str-le": operator.le,
    "str-gt": operator.gt,
    "str-ge": operator.ge,
    "str-prefix": str.startswith,
    "str-postfix": str.endswith,
    "str-contains": operator.contains,
    "isPresent": lambda value, operand: True,
}


def check(
    advertised: tuple[str, Any], operators: dict[str, Holds], bounds: Iterable[Any], values: Any
) -> None:
    sign, bound = advertised
    stages = Stages(Overlay([("B1", "B2")]))
    publisher = stages.person("B1", "p")
    publisher.advertise(f"[class,eq,k],[a,{sign},{bound!r}]")
    wanted = [(other, operand) for other in operators for operand in bounds]
    people = [stages.person("B2", f"s{number}") for number in range(len(wanted))]
    stages.stage()
    for person, (other, operand) in zip(people, wanted, strict=True):
        person.subscribe(f"[class,eq,k],[a,{other},{operand!r}]")
    stages.stage()
    for value in values:
        said = f"[class,k],[a,{value!r}]"
        if not operators[sign](value, bound):
            with pytest.raises(NotAdvertised):
                publisher.publish(said)
            stages.stage()
            continue
        publisher.publish(said)
        stages.stage(
            {
                person: [said]
                for person, (other, operand) in zip(people, wanted, strict=True)
                if operators[other](value, operand)
            }
        )


@pytest.mark.parametrize("sign", NUMBERS)
def test_numbers(sign: str) -> None:
    check((sign, 10), NUMBERS, (5, 10, 15), (4, 5, 6, 9, 9.5, 10, 10.5, 11, 14, 15, 16))


@pytest.mark.parametrize("sign", TEXTS)
def test_texts(sign: str) -> None:
    values = ("cat", "do", "dog", "dogma", "doh", "elk", "bulldog", "hotdogs", "og", "")
    check((sign, "dog"), TEXTS, ("dog", "do", "og", "elk"), values)
