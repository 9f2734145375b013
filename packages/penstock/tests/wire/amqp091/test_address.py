"""The address of a broker, from its URL."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigurationError
from penstock.wire.amqp091.address import HEARTBEAT_SECONDS, parse_amqp_url


@pytest.mark.parametrize(
    ("url", "shown", "user"),
    [
        ("amqp://localhost", "amqp://localhost:5672//", "guest"),
        ("amqp://localhost/", "amqp://localhost:5672//", "guest"),
        ("amqp://ada:secret@broker:99/lab", "amqp://broker:99/lab", "ada"),
        ("amqps://broker/%2F", "amqps://broker:5671//", "guest"),
        ("amqp://a%40b:c%2Fd@[::1]:7/x%2Fy", "amqp://[::1]:7/x/y", "a@b"),
    ],
)
def test_what_is_left_out_has_the_usual_default(url: str, shown: str, user: str) -> None:
    address = parse_amqp_url(url)

    assert (str(address), address.user) == (shown, user)
    assert address.heartbeat == HEARTBEAT_SECONDS


def test_options_follow_the_question_mark_and_others_options_are_passed_over() -> None:
    address = parse_amqp_url("amqps://host?heartbeat=5&cafile=/tmp/ca.pem&connection_attempts=3")

    assert (address.heartbeat, address.authorities) == (5, "/tmp/ca.pem")
    assert parse_amqp_url("amqps://host?cafile=a", "b").authorities == "b"


@pytest.mark.parametrize(
    "url",
    [
        *("http://host", "amqp://", "host"),
        *("amqp://ada:pa55@host:x", "amqp://ada:pa55@[host"),
        *("amqp://ada:pa55@host?heartbeat=often", "amqp://host?heartbeat=70000"),
    ],
)
def test_what_is_no_address_is_told_without_the_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_amqp_url(url)

    assert "url" in str(refused.value)
    assert "pa55" not in str(refused.value)
    assert "pa55" not in repr(refused.value.__cause__)


def test_the_password_is_in_nothing_that_is_printed() -> None:
    address = parse_amqp_url("amqp://ada:pa55@host")

    assert address.password == "pa55"
    assert "pa55" not in f"{address} {address!r}"
