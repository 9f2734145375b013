"""The content exchange: which messages a subscription takes, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.broker.contract import Message
from penstock.broker.destinations import Binding
from penstock.broker.properties import Properties, encode_header, encode_route
from penstock.content import LanguageError
from penstock.core.errors import PreconditionFailed
from penstock.drivers.routers.content import Content
from penstock.drivers.routers.publications import CONTENT_TYPE
from tests.doubles import message


def binding(subscription: Any, **arguments: Any) -> Binding:
    target: Any = object()
    return Binding("content", target, "", {"x-subscription": subscription, **arguments})


def takes(subscription: str, headers: dict[str, Any] | None) -> bool:
    router = Content()
    bound = binding(subscription, **{"x-several": True})
    router.check(bound)
    router.add(bound)
    return list(router.match(b"", message(headers=headers))) == [bound.destination]


def text(body: str | bytes) -> Message:
    octets = body if isinstance(body, bytes) else body.encode()
    header = encode_header(Properties(content_type=CONTENT_TYPE), len(octets))
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
    router = Content()
    bound = binding("[class,eq,stock],[price,<,50]")
    router.add(bound)

    assert list(router.match(b"", text("[class,stock],[price,45];"))) == [bound.destination]
    assert list(router.match(b"", text("[class,stock],[price,55];"))) == []


def test_a_body_that_is_no_publication_is_refused() -> None:
    with pytest.raises(LanguageError, match="column 15"):
        Content().match(b"", text("[class,stock],price"))
    with pytest.raises(PreconditionFailed, match="UTF-8"):
        Content().match(b"", text(b"[class,\xff]"))


@pytest.mark.parametrize("subscription", [None, 5, b"[class,eq,k]"])
def test_a_binding_without_a_subscription_is_refused(subscription: Any) -> None:
    with pytest.raises(PreconditionFailed, match="x-subscription"):
        Content().check(binding(subscription))


def test_a_mistake_in_a_subscription_is_refused_with_its_position() -> None:
    with pytest.raises(PreconditionFailed, match="column 23: expected a number"):
        Content().check(binding("[class,eq,stock],[a,<,x]"))


def test_several_predicates_on_an_attribute_have_to_be_asked_for() -> None:
    twice = "[class,eq,k],[a,>,1],[a,<,5]"

    with pytest.raises(PreconditionFailed, match="named twice"):
        Content().check(binding(twice))
    Content().check(binding(twice, **{"x-several": True}))


def test_what_is_removed_no_longer_matches() -> None:
    router = Content()
    first, second = binding("[class,eq,k]"), binding("[class,eq,k]")
    router.add(first)
    router.add(second)
    router.remove(first)

    found = list(router.match(b"", message(headers={"class": "k"})))
    assert found == [second.destination]
