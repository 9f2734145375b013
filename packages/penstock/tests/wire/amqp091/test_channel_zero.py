"""Channel 0: how a connection is opened, held up and closed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    CommandInvalid,
    NotFound,
    PenstockError,
)
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.channel_zero import ChannelZero, ClientConnectionState
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock.wire.amqp091.frames import FRAME_MAX, FrameSplitter
from penstock.wire.amqp091.methods import ReceivedMethod, decode_method, encode_method

ADDRESS = parse_amqp_url("amqp://ada:pa55@broker/lab?heartbeat=20")


def received(method: int, /, **arguments: Any) -> ReceivedMethod:
    return decode_method(encode_method(method, **arguments))


START = received(
    methods.CONNECTION_START,
    version_minor=9,
    server_properties={"capabilities": {"authentication_failure_close": True}},
)
TUNE = received(methods.CONNECTION_TUNE, channel_max=2047, frame_max=131072, heartbeat=60)
OPENED = received(methods.CONNECTION_OPEN_OK)


def sent(answer: bytes) -> list[ReceivedMethod]:
    return [decode_method(each.payload) for each in FrameSplitter().feed(answer)]


def at(stage: ClientConnectionState) -> ChannelZero:
    """A connection that has come so far."""
    zero = ChannelZero(ADDRESS, "a test")
    for method, after in (
        (START, ClientConnectionState.LOGIN),
        (TUNE, ClientConnectionState.TUNED),
        (OPENED, ClientConnectionState.OPEN),
    ):
        if zero.stage is stage:
            break
        zero.on_method(method)
        assert zero.stage is after
    return zero


def test_we_say_who_we_are_and_what_we_can() -> None:
    [answer] = sent(ChannelZero(ADDRESS, "a test").on_method(START))
    login = answer.arguments

    assert (login.mechanism, login.response) == ("PLAIN", b"\0ada\0pa55")
    assert login.client_properties["connection_name"] == "a test"
    assert login.client_properties["capabilities"]["connection.blocked"] is True


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        ((2047, 131072, 60), (2047, FRAME_MAX, 20)),
        ((10, 4096, 5), (10, 4096, 5)),
        ((0, 0, 0), (65535, FRAME_MAX, 20)),
        ((10, 1 << 30, 60), (10, FRAME_MAX, 20)),
    ],
)
def test_the_smaller_limit_holds(offered: tuple[int, ...], agreed: tuple[int, ...]) -> None:
    zero = at(ClientConnectionState.LOGIN)
    tuned, opening = sent(
        zero.on_method(
            received(
                methods.CONNECTION_TUNE,
                **dict(zip(("channel_max", "frame_max", "heartbeat"), offered, strict=True)),
            )
        )
    )

    assert tuple(vars(tuned.arguments).values()) == agreed
    assert (zero.channel_max, zero.frame_max, zero.heartbeat) == agreed
    assert opening.arguments.virtual_host == "lab"


def test_heartbeats_may_be_declined() -> None:
    zero = ChannelZero(ADDRESS, "a test", heartbeat=0)
    zero.on_method(START)
    tuned, _ = sent(zero.on_method(TUNE))

    assert tuned.arguments.heartbeat == zero.heartbeat == 0


@pytest.mark.parametrize(
    ("stage", "method"),
    [
        (ClientConnectionState.GREETING, TUNE),
        (ClientConnectionState.LOGIN, OPENED),
        (ClientConnectionState.OPEN, START),
        (ClientConnectionState.OPEN, TUNE),
    ],
    ids=["early tune", "early open", "late start", "late tune"],
)
def test_what_is_said_out_of_turn_is_refused(stage: ClientConnectionState, method: Any) -> None:
    with pytest.raises(CommandInvalid, match="unexpected"):
        at(stage).on_method(method)


def test_senders_wait_while_the_broker_asks_them_to() -> None:
    zero = at(ClientConnectionState.OPEN)
    zero.on_method(received(methods.CONNECTION_BLOCKED, reason="low on disk"))
    assert zero.blocked
    zero.on_method(received(methods.CONNECTION_UNBLOCKED))
    assert not zero.blocked


@pytest.mark.parametrize(
    ("stage", "code", "kind", "words"),
    [
        (
            ClientConnectionState.LOGIN,
            403,
            AuthenticationFailed,
            "authentication failed for user 'ada'",
        ),
        (ClientConnectionState.TUNED, 530, NotFound, "refused the virtual host 'lab'"),
        (ClientConnectionState.TUNED, 404, NotFound, "refused the virtual host 'lab'"),
        (ClientConnectionState.OPEN, 403, AccessRefused, "the text"),
        (ClientConnectionState.OPEN, 320, AmqpConnectionLost, "the text"),
    ],
)
def test_why_a_broker_closes_is_told_and_answered(
    stage: ClientConnectionState, code: int, kind: type[PenstockError], words: str
) -> None:
    zero = at(stage)
    [answer] = sent(
        zero.on_method(received(methods.CONNECTION_CLOSE, reply_code=code, reply_text="the text"))
    )

    assert answer.id == methods.CONNECTION_CLOSE_OK
    assert zero.stage is ClientConnectionState.CLOSED
    assert type(zero.ended) is kind
    assert words in str(zero.ended)
    assert "pa55" not in str(zero.ended)


def test_a_goodbye_is_answered() -> None:
    zero = at(ClientConnectionState.OPEN)
    [goodbye] = sent(zero.close())
    zero.on_method(received(methods.CONNECTION_CLOSE_OK))

    assert goodbye.id == methods.CONNECTION_CLOSE
    assert zero.stage is ClientConnectionState.CLOSED
    assert isinstance(zero.ended, AmqpConnectionLost)


def test_a_broker_that_goes_without_a_word_during_the_login_has_refused_it() -> None:
    zero = ChannelZero(ADDRESS, "a test")
    zero.on_method(received(methods.CONNECTION_START, version_minor=9))

    assert isinstance(zero.connection_lost_error(), AuthenticationFailed)


@pytest.mark.parametrize(
    "stage",
    [ClientConnectionState.GREETING, ClientConnectionState.LOGIN, ClientConnectionState.OPEN],
)
def test_one_that_would_have_said_so_is_merely_lost(stage: ClientConnectionState) -> None:
    assert isinstance(at(stage).connection_lost_error("reset"), AmqpConnectionLost)
