"""Composite subscriptions: nothing before a match is complete, and all of it when it is.

Each case is a subscription and its stages: what is published, and what comes because of it. Parts
are called by letters: `A` is a publication with `part` A. A letter with a number has that in `n`
and as text in `s`.
"""

from __future__ import annotations

import pytest

from penstock.client.padres import PadresClient
from penstock.core.errors import NotFound
from tests.padres import Watcher

Stages = list[tuple[str, str]]

CASES: dict[str, tuple[str, Stages]] = {
    "and": ("{A}&{B}", [("A", ""), ("B", "A B")]),
    "and, in the other order": ("{A}&{B}", [("B", ""), ("A", "B A")]),
    "and, an old partner counts again": ("{A}&{B}", [("A", ""), ("B", "A B"), ("B", "A B")]),
    "or": ("{A}||{B}", [("A", "A"), ("B", "B"), ("C", "")]),
    "(and) and": ("{{A}&{B}}&{C}", [("A", ""), ("B", ""), ("C", "A B C")]),
    "(or) or": ("{{A}||{B}}||{C}", [("A", "A"), ("C", "C"), ("B", "B")]),
    "(and) or": ("{{A}&{B}}||{C}", [("A", ""), ("C", "C"), ("B", "A B")]),
    "(or) and": ("{{A}||{B}}&{C}", [("A", ""), ("C", "A C"), ("B", "C B")]),
    "and (and)": ("{A}&{{B}&{C}}", [("C", ""), ("B", ""), ("A", "C B A")]),
    "and (or)": ("{A}&{{B}||{C}}", [("C", ""), ("A", "C A"), ("B", "A B")]),
    "or (and)": ("{A}||{{B}&{C}}", [("B", ""), ("A", "A"), ("C", "B C")]),
    "or (or)": ("{A}||{{B}||{C}}", [("C", "C"), ("B", "B")]),
    "two ors": ("{{A}||{B}}&{{C}||{D}}", [("A", ""), ("D", "A D"), ("B", "D B")]),
    "a text joins": ("{A$S}&{B$S}", [("A1", ""), ("B2", ""), ("B1", "A1 B1"), ("A2", "B2 A2")]),
    "a number joins": ("{A$I}&{B$I}", [("A1", ""), ("B2", ""), ("B1", "A1 B1")]),
    "a text in an or": ("{A$S}||{B$S}", [("A1", "A1"), ("B2", "B2")]),
    "three joined": (
        "{{A$I}&{B$I}}&{C$I}",
        [("A1", ""), ("B2", ""), ("C1", ""), ("C2", ""), ("B1", "A1 C1 B1")],
    ),
    "a workflow": (
        # A is done when both B and C of the same number are; D reports a failure at any time.
        "{{A$I}&{{B$I}&{C$I}}}||{D}",
        [("B7", ""), ("A7", ""), ("C8", ""), ("D9", "D9"), ("C7", "B7 A7 C7")],
    ),
    "a workflow of alternatives": (
        "{{A$I}&{{B$I}||{C$I}}}&{D$I}",
        [("A3", ""), ("C3", ""), ("D4", ""), ("D3", "A3 C3 D3"), ("B3", "A3 D3 B3")],
    ),
}
ADVERTISED = "[class,eq,{kind}],[part,isPresent,''],[n,isPresent,0],[s,isPresent,'']"


def composite(shape: str, kind: str) -> str:
    for part in "ABCD":
        atom = f"[class,eq,{kind}],[part,eq,{part}]"
        shape = shape.replace(f"{{{part}$S}}", f"{{{atom},[s,eq,$S$x]}}")
        shape = shape.replace(f"{{{part}$I}}", f"{{{atom},[n,=,$I$x]}}")
        shape = shape.replace(f"{{{part}}}", f"{{{atom}}}")
    return f"{{{shape}}}"


async def publish(client: PadresClient, kind: str, name: str) -> None:
    number = name[1:] or "0"
    await client.publish(f"[class,{kind}],[part,{name[0]}],[n,{number}],[s,'{number}']")


async def got(watcher: Watcher) -> str:
    found = [(str(one["part"]), str(one["n"])) for one in await watcher.got()]
    return " ".join(part + number.replace("0", "") for part, number in found)


@pytest.mark.parametrize("case", CASES)
async def test_a_composite_brings_all_its_publications_when_it_is_complete(
    ada: PadresClient, bob: Watcher, kind: str, case: str
) -> None:
    shape, stages = CASES[case]
    await ada.advertise(ADVERTISED.format(kind=kind))
    await bob.client.subscribe(composite(shape, kind))

    for published, comes in stages:
        await publish(ada, kind, published)
        assert await got(bob) == comes, published


async def test_a_composite_may_come_before_the_advertisement(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await bob.client.subscribe(composite("{A}&{B}", kind))
    await ada.advertise(ADVERTISED.format(kind=kind))
    await publish(ada, kind, "A")
    await publish(ada, kind, "B")

    assert await got(bob) == "A B"


async def test_a_publication_that_counts_once_has_one_partner(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await ada.advertise(ADVERTISED.format(kind=kind))
    await bob.client.subscribe(composite("{A}&{B}", kind), policy="consume-once")
    for name in ("A1", "B1", "B2"):
        await publish(ada, kind, name)

    assert await got(bob) == "A1 B1"


async def test_a_plain_subscription_beside_a_composite_brings_a_publication_once(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await ada.advertise(ADVERTISED.format(kind=kind))
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await bob.client.subscribe(composite("{A}&{B}", kind))
    await publish(ada, kind, "A")
    await publish(ada, kind, "B")

    assert sorted((await got(bob)).split()) == ["A", "A", "B"]


async def test_a_composite_that_is_withdrawn_brings_no_more(
    ada: PadresClient, bob: Watcher, kind: str
) -> None:
    await ada.advertise(ADVERTISED.format(kind=kind))
    wanted = await bob.client.subscribe(composite("{A}&{B}", kind))
    await publish(ada, kind, "A")
    await bob.client.withdraw(wanted)
    await publish(ada, kind, "B")

    assert await got(bob) == ""
    with pytest.raises(NotFound):
        await bob.client.withdraw(wanted)
