"""The content exchange: which messages a subscription takes, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.broker.contract import Binding, Message
from penstock.broker.spool import Spool
from penstock.content import LanguageError
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import PreconditionFailed
from penstock.destinations.content_exchange import ContentExchangeRouter
from penstock.destinations.publications import CONTENT_TYPE
from tests.doubles import message


def binding(subscription: Any, **arguments: Any) -> Binding:
    target: Any = object()
    return Binding("content", target, "", {"x-subscription": subscription, **arguments})


def takes(subscription: str, headers: dict[str, Any] | None) -> bool:
    router = ContentExchangeRouter()
    bound = binding(subscription, **{"x-several": True})
    router.check(bound)
    router.add(bound)
    return list(router.match(b"", message(headers=headers))) == [bound.destination]


def text(body: str | bytes) -> Message:
    octets = body if isinstance(body, bytes) else body.encode()
    header = encode_header(BasicProperties(content_type=CONTENT_TYPE), len(octets))
    return Message(encode_route("content", ""), header, octets)


@pytest.mark.parametrize(
    ("predicates", "headers", "taken"),
    [
        ("", {}, True),
        (",[a,eq,x]", {"a": "x"}, True),
        (",[a,eq,x]", {"a": "y"}, False),
        (",[a,>,5],[a,<,7]", {"a": 6}, True),
        (",[a,>,5]", {"a": 5.5}, True),
        (",[a,>,5]", {"a": "6"}, False),
        (",[a,>,5]", {"a": Decimal("5.5")}, True),
        (",[a,eq,true]", {"a": True}, True),
        (",[a,=,1]", {"a": True}, False),
        (",[a,=,86400]", {"a": datetime(1970, 1, 2, tzinfo=UTC)}, True),
        (",[a,isPresent,0]", {"a": float("nan")}, False),
        (",[a,isPresent,'']", {"a": b"bytes"}, False),
        (",[a,isPresent,'']", {"a": [1]}, False),
    ],
)
def test_headers_are_attributes(predicates: str, headers: dict[str, Any], taken: bool) -> None:
    assert takes(f"[class,eq,k]{predicates}", {"class": "k", **headers}) is taken


@pytest.mark.parametrize("headers", [None, {}, {"a": 1}, {"class": 5}, {"class": "m"}])
def test_a_message_of_no_class_goes_nowhere(headers: dict[str, Any] | None) -> None:
    assert not takes("[class,eq,k]", headers)


def test_a_body_may_be_the_publication() -> None:
    router = ContentExchangeRouter()
    bound = binding("[class,eq,stock],[price,<,50]")
    router.add(bound)

    assert list(router.match(b"", text("[class,stock],[price,45];"))) == [bound.destination]
    assert list(router.match(b"", text("[class,stock],[price,55];"))) == []


def test_a_body_that_is_no_publication_is_refused() -> None:
    with pytest.raises(LanguageError, match="column 15"):
        ContentExchangeRouter().match(b"", text("[class,stock],price"))
    with pytest.raises(PreconditionFailed, match="UTF-8"):
        ContentExchangeRouter().match(b"", text(b"[class,\xff]"))


@pytest.mark.parametrize("subscription", [None, 5, b"[class,eq,k]"])
def test_a_binding_without_a_subscription_is_refused(subscription: Any) -> None:
    with pytest.raises(PreconditionFailed, match="x-subscription"):
        ContentExchangeRouter().check(binding(subscription))


def test_a_mistake_in_a_subscription_is_refused_with_its_position() -> None:
    with pytest.raises(PreconditionFailed, match="column 23: expected a number"):
        ContentExchangeRouter().check(binding("[class,eq,stock],[a,<,x]"))


def test_several_predicates_on_an_attribute_have_to_be_asked_for() -> None:
    twice = "[class,eq,k],[a,>,1],[a,<,5]"

    with pytest.raises(PreconditionFailed, match="named twice"):
        ContentExchangeRouter().check(binding(twice))
    ContentExchangeRouter().check(binding(twice, **{"x-several": True}))


def test_what_is_removed_no_longer_matches() -> None:
    router = ContentExchangeRouter()
    first, second = binding("[class,eq,k]"), binding("[class,eq,k]")
    router.add(first)
    router.add(second)
    router.remove(first)

    found = list(router.match(b"", message(headers={"class": "k"})))
    assert found == [second.destination]


# Messages that are wanted together.


class Taker:
    """A destination that notes what it is given."""

    kind = "queue"

    def __init__(self, name: str = "taker") -> None:
        self.name = name
        self.taken: list[bytes] = []

    def push(self, message: Message) -> int:
        self.taken.append(message.body)
        return 0


def bound(router: ContentExchangeRouter, taker: Taker, **arguments: Any) -> Binding:
    target: Any = taker
    made = Binding(
        "content", target, "", {name.replace("_", "-"): value for name, value in arguments.items()}
    )
    router.check(made)
    router.add(made)
    return made


def say(router: ContentExchangeRouter, name: str) -> None:
    """Route a message of class k whose part and body are the name."""
    one = message(name.encode(), headers={"class": "k", "part": name})
    for destination in router.match(b"", one):
        cast(Taker, destination).push(one)


BOTH = "{{[class,eq,k],[part,eq,A]}&{[class,eq,k],[part,eq,B]}}"


def test_a_composite_brings_what_waited_with_what_completes_it() -> None:
    router, taker = ContentExchangeRouter(), Taker()
    bound(router, taker, x_subscription=BOTH)

    say(router, "A")
    assert taker.taken == []
    say(router, "C")
    say(router, "B")
    assert taker.taken == [b"A", b"B"]


def test_large_messages_wait_in_files_that_are_open_while_they_are_read_alone(
    tmp_path: Path,
) -> None:
    router, bodies = ContentExchangeRouter(), []

    class Reader(Taker):
        def push(self, message: Message) -> int:
            bodies.append(message.body if message.spool is None else message.spool.read())
            return 0

    bound(router, Reader(), x_subscription=BOTH, x_policy="consume-once")
    for number in range(20):
        large = message(headers={"class": "k", "part": "A"})
        large.spool = Spool(tmp_path / f"{number}", owned=True)
        large.spool.write(memoryview(b"%d" % number))
        assert list(router.match(b"", large)) == []
    del large
    say(router, "C")  # the router remembers the last one
    opened = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.exists()]

    assert not [path for path in opened if path.is_relative_to(tmp_path)]
    assert len(list(tmp_path.iterdir())) == 20
    for _ in range(20):
        say(router, "B")
    assert bodies == [one for number in range(20) for one in (b"%d" % number, b"B")]
    say(router, "C")
    assert list(tmp_path.iterdir()) == []


def test_what_goes_somewhere_anyway_does_not_go_twice() -> None:
    router, taker = ContentExchangeRouter(), Taker()
    bound(router, taker, x_subscription=BOTH)
    bound(router, taker, x_subscription="[class,eq,k],[part,eq,B]")
    say(router, "A")
    say(router, "B")

    assert sorted(taker.taken) == [b"A", b"B"]


def test_a_message_with_several_keys_counts_once() -> None:
    router, taker = ContentExchangeRouter(), Taker()
    bound(router, taker, x_subscription=BOTH, x_policy="consume-once")
    first = message(b"A", headers={"class": "k", "part": "A"})
    for _ in range(2):
        assert list(router.match(b"", first)) == []
    say(router, "B")
    say(router, "B")

    assert taker.taken == [b"A", b"B"]


def test_a_composite_that_is_unbound_is_forgotten() -> None:
    router, taker = ContentExchangeRouter(), Taker()
    made = bound(router, taker, x_subscription=BOTH)
    say(router, "A")
    router.remove(made)
    say(router, "B")

    assert taker.taken == []


def test_a_binding_may_take_everything() -> None:
    router, taker = ContentExchangeRouter(), Taker()
    made = bound(router, taker, x_all=True)
    say(router, "A")
    router.remove(made)
    say(router, "B")

    assert taker.taken == [b"A"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x_subscription": BOTH, "x_policy": "never"},
        {"x_subscription": BOTH, "x_size": 0},
        {"x_subscription": BOTH, "x_seconds": "soon"},
        {"x_subscription": BOTH[1:]},
        {"x_all": False},
    ],
)
def test_a_binding_that_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PreconditionFailed):
        bound(ContentExchangeRouter(), Taker(), **arguments)
