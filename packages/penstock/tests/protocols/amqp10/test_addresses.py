"""Addresses of AMQP 1.0, and the filters of a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocols.amqp10.addresses import LinkAddress, parse_link_address, queue_address
from penstock.protocols.amqp10.filters import (
    FilterSet,
    StreamFilters,
    parse_binding_filters,
    parse_stream_filters,
    queue_arguments,
)
from penstock.wire.amqp10.errors import INVALID_FIELD, NOT_FOUND, LinkFault
from penstock.wire.amqp10.values import Described, Symbol, UInt, ULong


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("name", LinkAddress("queue", "name", declares=True)),
        ("with%20percent", LinkAddress("queue", "with%20percent", declares=True)),
        ("/queue/name", LinkAddress("queue", "name", declares=True)),
        ("/queue/a%2Fb", LinkAddress("queue", "a/b", declares=True)),
        ("/queues/name", LinkAddress("queue", "name")),
        ("/amq/queue/name", LinkAddress("queue", "name")),
        ("/stream/name", LinkAddress("stream", "name", declares=True)),
        ("/exchange/e", LinkAddress("exchange", "e")),
        ("/exchange/e/", LinkAddress("exchange", "e", "")),
        ("/exchange/e/k", LinkAddress("exchange", "e", "k")),
        ("/exchange/e/k/l", LinkAddress("exchange", "e", "k/l")),
        ("/exchanges/e%2Ff/k%20l", LinkAddress("exchange", "e/f", "k l")),
        ("/topic/a.b", LinkAddress("exchange", "amq.topic", "a.b")),
        ("/topic/a/b", LinkAddress("exchange", "amq.topic", "a/b")),
    ],
)
def test_an_address_names_a_place(address: str, place: LinkAddress) -> None:
    assert parse_link_address(address) == place


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("", NOT_FOUND),
        ("/", NOT_FOUND),
        ("/queue/", NOT_FOUND),
        ("/queue/a/b", NOT_FOUND),
        ("/topic/", NOT_FOUND),
        ("/topic", NOT_FOUND),
        ("/exchange", NOT_FOUND),
        ("/elsewhere/x", NOT_FOUND),
        ("/queue/%ff", INVALID_FIELD),
        (7, INVALID_FIELD),
        (None, INVALID_FIELD),
    ],
)
def test_other_addresses_name_nothing(address: Any, condition: str) -> None:
    with pytest.raises(LinkFault) as caught:
        parse_link_address(address)
    assert caught.value.condition == condition


def test_the_address_of_a_queue_leads_to_it() -> None:
    assert parse_link_address(queue_address("a/b c%")) == LinkAddress("queue", "a/b c%")


def test_filters_are_known_by_descriptor_or_by_name() -> None:
    offset = Symbol("rabbitmq:stream-offset-spec")
    described = {Symbol("mine"): Described(offset, ULong(7))}
    assert parse_stream_filters(described) == StreamFilters(7, None, described)
    assert parse_stream_filters({offset: "first"}) == StreamFilters(
        "first", None, {offset: "first"}
    )
    assert parse_stream_filters(None) == StreamFilters("next", None, {})


@pytest.mark.parametrize("read", [parse_stream_filters, parse_binding_filters])
@pytest.mark.parametrize(
    "unknown",
    [
        {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
        {Symbol("jms-selector"): Described(ULong(0x468C00000004), "a = 1")},
        {Symbol("other"): "first"},
    ],
)
def test_a_filter_that_cannot_be_applied_is_refused(
    read: Callable[[FilterSet | None], Any], unknown: FilterSet
) -> None:
    with pytest.raises(LinkFault) as caught:
        read(unknown)
    assert caught.value.condition == "amqp:not-implemented"


def test_filters_bind_an_exchange() -> None:
    filters = {
        Symbol("keys"): Described(ULong(0x468C00000001), ["a", "b"]),
        Symbol("headers"): Described(ULong(0x468C00000002), {"x-match": "any", "n": UInt(1)}),
        Symbol("penstock:subscription"): "[class,eq,stock]",
    }
    wanted = parse_binding_filters(filters)
    assert wanted.keys == ["a", "b"]
    assert wanted.arguments == {"x-match": "any", "n": 1, "x-subscription": "[class,eq,stock]"}
    assert set(wanted.accepted) == {"keys", "headers", "penstock:subscription"}


@pytest.mark.parametrize("value", [7, [], [1], None])
def test_a_filter_of_the_wrong_type_is_refused(value: Any) -> None:
    with pytest.raises(LinkFault):
        parse_binding_filters({Symbol("k"): Described(ULong(0x468C00000001), value)})


def test_only_what_begins_with_x_is_an_argument() -> None:
    properties = {Symbol("x-max-length"): ULong(5), Symbol("product"): "x", 7: "y"}
    assert queue_arguments(properties) == {"x-max-length": 5}
    assert type(queue_arguments(properties)["x-max-length"]) is int
    with pytest.raises(LinkFault):
        queue_arguments({Symbol("x-list"): [1]})
