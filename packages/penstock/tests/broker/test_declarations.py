"""What a declaration may ask for, and whether it asks for what already exists."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.declarations import age_seconds, properties_key, queue_type
from penstock.core.errors import PreconditionFailed
from tests.doubles import Stand


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("30m", 1_800),
        ("12h", 43_200),
        ("7D", 604_800),
        ("2M", 5_184_000),
        ("1Y", 31_536_000),
    ],
)
def test_ages(text: str, seconds: int) -> None:
    assert age_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "D", "7d", "-7D", "7D ", "1.5h"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ValueError, match="7D"):
        age_seconds(text)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-message-ttl", -1),
        ("x-message-ttl", "60000"),
        ("x-message-ttl", True),
        ("x-expires", 0),
        ("x-max-length", -1),
        ("x-max-length-bytes", 1.5),
        ("x-max-priority", 256),
        ("x-overflow", "drop-tail"),
        ("x-queue-mode", "eager"),
        ("x-queue-type", "other"),
        ("x-dead-letter-exchange", 7),
        ("x-single-active-consumer", "yes"),
        ("x-max-age", "1h"),  # of streams only
    ],
)
def test_an_argument_that_makes_no_sense_is_named(argument: str, value: Any) -> None:
    with pytest.raises(PreconditionFailed, match=f"invalid arg '{argument}' for queue 'q'"):
        queue_type("/", "q", False, False, False, {argument: value})


@pytest.mark.parametrize(
    "argument", ["x-message-ttl", "x-max-priority", "x-dead-letter-exchange", "x-max-length"]
)
def test_a_stream_has_no_use_for_what_empties_a_queue(argument: str) -> None:
    value = "x" if argument.endswith("exchange") else 1
    with pytest.raises(PreconditionFailed, match=argument):
        queue_type("/", "s", True, False, False, {"x-queue-type": "stream", argument: value})


def test_what_nobody_knows_is_the_clients_own() -> None:
    assert queue_type("/", "q", False, False, False, {"x-mine": object()}) == "classic"


@pytest.mark.parametrize(
    ("kind", "durable", "exclusive", "auto_delete"),
    [("stream", False, False, False), ("stream", True, True, False), ("stream", True, False, True),
     ("quorum", False, False, False), ("quorum", True, True, False)],
)  # fmt: skip
def test_what_must_last_is_durable_and_shared(
    kind: str, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    with pytest.raises(PreconditionFailed, match="invalid property"):
        queue_type("/", "q", durable, exclusive, auto_delete, {"x-queue-type": kind})


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        ({}, {"durable": True}, "durable"),
        ({}, {"auto_delete": True}, "auto_delete"),
        ({}, {"arguments": {"x-max-length": 1}}, "x-max-length"),
        ({"arguments": {"x-max-length": 2}}, {"arguments": {"x-max-length": 1}}, "x-max-length"),
        ({"arguments": {"x-max-length": 2}}, {}, "x-max-length"),
    ],
)
async def test_a_queue_is_not_declared_differently(
    stand: Stand, first: dict[str, Any], second: dict[str, Any], wrong: str
) -> None:
    stand.vhost.declare_queue("q", **first)
    with pytest.raises(PreconditionFailed, match=f"inequivalent arg '{wrong}' for queue 'q'"):
        stand.vhost.declare_queue("q", **second)
    assert stand.vhost.declare_queue("q", **first) is stand.vhost.queues["q"]


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        ({"kind": "fanout"}, "type"),
        ({"durable": True}, "durable"),
        ({"auto_delete": True}, "auto_delete"),
        ({"internal": True}, "internal"),
        ({"arguments": {"alternate-exchange": "a"}}, "alternate-exchange"),
    ],
)
async def test_nor_an_exchange(stand: Stand, second: dict[str, Any], wrong: str) -> None:
    stand.vhost.declare_exchange("x", "direct")
    with pytest.raises(PreconditionFailed, match=f"inequivalent arg '{wrong}' for exchange 'x'"):
        stand.vhost.declare_exchange("x", **{"kind": "direct", **second})


async def test_arguments_of_the_clients_own_need_not_be_equal(stand: Stand) -> None:
    first = stand.vhost.declare_queue("q", arguments={"x-mine": 1})
    again = stand.vhost.declare_queue("q", arguments={"x-mine": 2, "x-queue-type": "classic"})
    assert again is first


def test_a_binding_has_a_name_of_its_own() -> None:
    assert properties_key("", {}) == "~"
    assert properties_key("key", {}) == "key"
    assert properties_key("key", {"a": 1}) != properties_key("key", {"a": 2})
