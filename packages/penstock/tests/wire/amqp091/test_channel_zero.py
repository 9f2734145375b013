"""Channel 0: how a connection is opened, held up and closed."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    CommandInvalid,
    NotFound,
    PenstockError,
)
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.channel_zero import ChannelZero, ClientConnectionState
from penstock.wire.amqp091.content import FRAME_MAX, FrameSplitter, decode_pamqp_method
from penstock.wire.amqp091.errors import AmqpConnectionLost

ADDRESS = parse_amqp_url("amqp://ada:pa55@broker/lab?heartbeat=20")
START = commands.Connection.Start(0, 9, {"capabilities": {"authentication_failure_close": True}})
TUNE = commands.Connection.Tune(2047, 131072, 60)
OPENED = commands.Connection.OpenOk()


def said(answer: bytes) -> list[Any]:
    return [decode_pamqp_method(each.payload) for each in FrameSplitter().feed(answer)]


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
        zero.hear(method)
        assert zero.stage is after
    return zero


def test_we_say_who_we_are_and_what_we_can() -> None:
    [login] = said(ChannelZero(ADDRESS, "a test").hear(START))

    assert (login.mechanism, login.response) == ("PLAIN", "\0ada\0pa55")
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
    tuned, opening = said(zero.hear(commands.Connection.Tune(*offered)))

    assert (tuned.channel_max, tuned.frame_max, tuned.heartbeat) == agreed
    assert (zero.channel_max, zero.frame_max, zero.heartbeat) == agreed
    assert opening.virtual_host == "lab"


def test_heartbeats_may_be_declined() -> None:
    zero = ChannelZero(ADDRESS, "a test", heartbeat=0)
    zero.hear(START)
    tuned, _ = said(zero.hear(TUNE))

    assert tuned.heartbeat == zero.heartbeat == 0


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
    with pytest.raises(CommandInvalid, match="out of turn"):
        at(stage).hear(method)


def test_senders_wait_while_the_broker_asks_them_to() -> None:
    zero = at(ClientConnectionState.OPEN)
    zero.hear(commands.Connection.Blocked("low on disk"))
    assert zero.blocked
    zero.hear(commands.Connection.Unblocked())
    assert not zero.blocked


@pytest.mark.parametrize(
    ("stage", "code", "kind", "words"),
    [
        (ClientConnectionState.LOGIN, 403, AuthenticationFailed, "does not let 'ada' in"),
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
    [answer] = said(zero.hear(commands.Connection.Close(code, "the text", 0, 0)))

    assert isinstance(answer, commands.Connection.CloseOk)
    assert zero.stage is ClientConnectionState.CLOSED
    assert type(zero.ended) is kind
    assert words in str(zero.ended)
    assert "pa55" not in str(zero.ended)


def test_a_goodbye_is_answered() -> None:
    zero = at(ClientConnectionState.OPEN)
    [goodbye] = said(zero.leave())
    zero.hear(commands.Connection.CloseOk())

    assert isinstance(goodbye, commands.Connection.Close)
    assert zero.stage is ClientConnectionState.CLOSED
    assert isinstance(zero.ended, AmqpConnectionLost)


def test_a_broker_that_goes_without_a_word_during_the_login_has_refused_it() -> None:
    zero = ChannelZero(ADDRESS, "a test")
    zero.hear(commands.Connection.Start(0, 9, {}))

    assert isinstance(zero.broken(), AuthenticationFailed)


@pytest.mark.parametrize(
    "stage",
    [ClientConnectionState.GREETING, ClientConnectionState.LOGIN, ClientConnectionState.OPEN],
)
def test_one_that_would_have_said_so_is_merely_lost(stage: ClientConnectionState) -> None:
    assert isinstance(at(stage).broken("reset"), AmqpConnectionLost)
