"""How a connection opens: the offer, the login, the tuning, the virtual host."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika import spec
from pika.exceptions import (
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.wire import PROTOCOL_HEADER, Wire, method_bytes

CAPABILITIES = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
]


def start(wire: Wire) -> spec.Connection.Start:
    wire.send(PROTOCOL_HEADER)
    return wire.receive_method()


def log_in(wire: Wire, response: str, mechanism: str = "PLAIN", **capabilities: bool) -> Any:
    """Answer the offer; the broker's Tune or Close, or None when it hangs up."""
    properties = {"capabilities": capabilities}
    return wire.call(0, spec.Connection.StartOk(properties, mechanism, response, "en_US"))


def test_the_broker_offers_version_0_9_and_plain_login(wire: Wire) -> None:
    offer = start(wire)

    assert (offer.version_major, offer.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(offer.mechanisms.decode().split())
    assert offer.locales == b"en_US"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_broker_announces_its_capabilities(wire: Wire, capability: str) -> None:
    offer = start(wire)

    assert offer.server_properties["capabilities"][capability] is True


def test_the_broker_names_itself(wire: Wire) -> None:
    offer = start(wire)

    assert {"product", "version", "platform"} <= set(offer.server_properties)


def test_the_broker_proposes_limits(wire: Wire) -> None:
    start(wire)
    tune = log_in(wire, "\0guest\0guest")

    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


def test_amqplain_logs_in_with_a_table(wire: Wire) -> None:
    start(wire)
    response = "\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest"
    tune = log_in(wire, response, "AMQPLAIN")

    assert isinstance(tune, spec.Connection.Tune)


def test_a_wrong_password_is_refused_in_words_for_a_client_that_understands(wire: Wire) -> None:
    start(wire)
    close = log_in(wire, "\0guest\0wrong", authentication_failure_close=True)

    assert close.reply_code == 403
    assert close.reply_text.startswith("ACCESS_REFUSED - Login was refused using authentication")


def test_a_wrong_password_just_closes_for_a_client_that_does_not(wire: Wire) -> None:
    start(wire)

    assert log_in(wire, "\0guest\0wrong") is None


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("NONSENSE", "\0guest\0guest"), ("PLAIN", "nonsense"), ("PLAIN", "\0nobody\0guest")],
    ids=["unknown mechanism", "unreadable", "unknown user"],
)
def test_what_is_no_login_is_closed(wire: Wire, mechanism: str, response: str) -> None:
    start(wire)

    assert log_in(wire, response, mechanism) is None


def test_pika_sees_a_wrong_password_as_refused(connect: Connect) -> None:
    with pytest.raises((ProbableAuthenticationError, ConnectionClosedByBroker)) as caught:
        connect(credentials=pika.PlainCredentials("guest", "wrong"))

    assert "ACCESS_REFUSED" in str(caught.value)


def test_a_missing_virtual_host_is_refused_with_530(connect: Connect) -> None:
    with pytest.raises((ConnectionClosedByBroker, ProbableAccessDeniedError)) as caught:
        connect(virtual_host="nowhere")

    assert "(530) 'NOT_ALLOWED - vhost nowhere not found'" in str(caught.value)


@pytest.mark.parametrize(("channel_max", "frame_max"), [(65535, 131072), (2047, 131073)])
def test_a_client_may_not_raise_the_limits(wire: Wire, channel_max: int, frame_max: int) -> None:
    start(wire)
    log_in(wire, "\0guest\0guest")
    wire.send(method_bytes(0, spec.Connection.TuneOk(channel_max, frame_max, 0)))
    answer = wire.call(0, spec.Connection.Open("/"))

    assert answer is None or answer.reply_code == 530


def test_a_frame_max_under_the_least_is_refused(wire: Wire) -> None:
    start(wire)
    log_in(wire, "\0guest\0guest")
    wire.send(method_bytes(0, spec.Connection.TuneOk(2047, 4095, 0)))
    answer = wire.call(0, spec.Connection.Open("/"))

    assert answer is None or answer.reply_code == 530


def test_closing_is_answered(open_wire: Wire) -> None:
    answer = open_wire.call(0, spec.Connection.Close(200, "bye", 0, 0))

    assert isinstance(answer, spec.Connection.CloseOk)


def test_a_secret_can_be_renewed_on_an_open_connection(connection: pika.BlockingConnection) -> None:
    connection.update_secret("guest", "renewed")

    assert connection.channel().is_open
