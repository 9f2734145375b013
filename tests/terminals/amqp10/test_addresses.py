"""Addresses of AMQP 1.0, and the filters of a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.terminals.amqp10.addresses import Place, parse_address, queue_address
from penstock.terminals.amqp10.filters import (
    Filters,
    StreamFilters,
    arguments_of,
    bindings,
    stream_filters,
)
from penstock.wire.amqp10.conditions import INVALID_FIELD, NOT_FOUND, LinkFault
from penstock.wire.amqp10.values import Described, Symbol, UInt, ULong


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("name", Place("queue", "name", declares=True)),
        ("with%20percent", Place("queue", "with%20percent", declares=True)),
        ("/queue/name", Place("queue", "name", declares=True)),
        ("/queue/a%2Fb", Place("queue", "a/b", declares=True)),
        ("/queues/name", Place("queue", "name")),
        ("/amq/queue/name", Place("queue", "name")),
        ("/stream/name", Place("stream", "name", declares=True)),
        ("/exchange/e", Place("exchange", "e")),
        ("/exchange/e/", Place("exchange", "e", "")),
        ("/exchange/e/k", Place("exchange", "e", "k")),
        ("/exchange/e/k/l", Place("exchange", "e", "k/l")),
        ("/exchanges/e%2Ff/k%20l", Place("exchange", "e/f", "k l")),
        ("/topic/a.b", Place("exchange", "amq.topic", "a.b")),
        ("/topic/a/b", Place("exchange", "amq.topic", "a/b")),
    ],
)
def test_an_address_names_a_place(address: str, place: Place) -> None:
    assert parse_address(address) == place


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
        parse_address(address)
    assert caught.value.condition == condition


def test_the_address_of_a_queue_leads_to_it() -> None:
    assert parse_address(queue_address("a/b c%")) == Place("queue", "a/b c%")


def test_filters_are_known_by_descriptor_or_by_name() -> None:
    offset = Symbol("rabbitmq:stream-offset-spec")
    described = {Symbol("mine"): Described(offset, ULong(7))}
    assert stream_filters(described) == StreamFilters(7, None, described)
    assert stream_filters({offset: "first"}) == StreamFilters("first", None, {offset: "first"})
    assert stream_filters(None) == StreamFilters("next", None, {})


@pytest.mark.parametrize("read", [stream_filters, bindings])
@pytest.mark.parametrize(
    "unknown",
    [
        {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
        {Symbol("jms-selector"): Described(ULong(0x468C00000004), "a = 1")},
        {Symbol("sql-filter"): Described(Symbol("amqp:sql-filter"), "a = 1")},
        {Symbol("other"): "first"},
    ],
)
def test_a_filter_that_cannot_be_applied_is_refused(
    read: Callable[[Filters | None], Any], unknown: Filters
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
    wanted = bindings(filters)
    assert wanted.keys == ["a", "b"]
    assert wanted.arguments == {"x-match": "any", "n": 1, "x-subscription": "[class,eq,stock]"}
    assert set(wanted.accepted) == {"keys", "headers", "penstock:subscription"}


@pytest.mark.parametrize("value", [7, [], [1], None])
def test_a_filter_of_the_wrong_type_is_refused(value: Any) -> None:
    with pytest.raises(LinkFault):
        bindings({Symbol("k"): Described(ULong(0x468C00000001), value)})


def test_only_what_begins_with_x_is_an_argument() -> None:
    properties = {Symbol("x-max-length"): ULong(5), Symbol("product"): "x", 7: "y"}
    assert arguments_of(properties) == {"x-max-length": 5}
    assert type(arguments_of(properties)["x-max-length"]) is int
    with pytest.raises(LinkFault):
        arguments_of({Symbol("x-list"): [1]})
