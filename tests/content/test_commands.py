"""Commands: a verb, and what it is about."""

from __future__ import annotations

import pytest

from penstock.content import (
    CompositeUnsubscription,
    LanguageError,
    Unadvertisement,
    Unsubscription,
    parse_advertisement,
    parse_composite,
    parse_publication,
    parse_subscription,
)
from penstock.content.commands import Command, parse_command

FILTER = "[class,eq,stock],[price,<,50]"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (f"adv {FILTER}", parse_advertisement(FILTER)),
        (f"a {FILTER}", parse_advertisement(FILTER)),
        (f" sub  {FILTER};", parse_subscription(FILTER)),
        (f"s {FILTER}", parse_subscription(FILTER)),
        (f"csub {{{{{FILTER}}}}}", parse_composite(f"{{{{{FILTER}}}}}")),
        ("pub [class,stock],[price,45]", parse_publication("[class,stock],[price,45];")),
        ("p [class,stock]", parse_publication("[class,stock];")),
        ("unsub B1-M7", Unsubscription("B1-M7")),
        ("unadv B1-M7", Unadvertisement("B1-M7")),
        ("uncsub B1-M7", CompositeUnsubscription("B1-M7")),
    ],
)
def test_commands(line: str, command: Command) -> None:
    assert parse_command(line) == command


@pytest.mark.parametrize(
    ("line", "column"),
    [
        *(("", 1), ("  subscribe [class,eq,k]", 3), ("sub", 4), ("sub [klass,eq,k]", 6)),
        *(("unsub", 6), ("unsub B1-M7 B1-M8", 13), ("p [class,stock],[price]", 23)),
    ],
)
def test_mistakes_are_named_with_their_position_in_the_line(line: str, column: int) -> None:
    with pytest.raises(LanguageError) as caught:
        parse_command(line)

    assert caught.value.column == column
