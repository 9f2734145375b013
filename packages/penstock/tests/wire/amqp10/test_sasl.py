"""Protocol headers and SASL: who is let in, how, and what the others are told."""

from __future__ import annotations

import pytest

from penstock.core.errors import AuthenticationFailed
from penstock.wire.amqp10.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from penstock.wire.amqp10.performatives import (
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    encode_performative_frame,
    encode_sasl_frame,
)
from penstock.wire.amqp10.sasl import (
    ANONYMOUS,
    PLAIN,
    SaslClient,
    SaslServer,
    decode_plain_response,
    encode_plain_response,
)
from tests.wire.amqp10.pair import End


class Door:
    """A gate that lets in whom a test says."""

    def __init__(self, end: End, *mechanisms: str, nobody: bool = False) -> None:
        self.mechanisms = mechanisms
        self.allows_anonymous = nobody
        self.asked: list[tuple[str, bytes]] = []
        self.sent_away: list[str] = []
        self.opening = SaslServer(end.connection, self)
        end.connection.opening = self.opening

    def authenticate(self, mechanism: str, response: bytes) -> None:
        self.asked.append((mechanism, response))

    def on_refused(self, reason: str) -> None:
        self.sent_away.append(reason)


def door(*mechanisms: str, nobody: bool = False) -> tuple[End, Door]:
    end = End("server")
    return end, Door(end, *(mechanisms or (PLAIN,)), nobody=nobody)


def test_a_client_of_the_engine_gets_through_to_its_server() -> None:
    server, gate = door(PLAIN, ANONYMOUS)
    client = End("client")
    opening = SaslClient(
        client.connection,
        PLAIN,
        encode_plain_response("me", "secret"),
        "host",
        client.connection.open,
    )
    client.connection.opening = opening
    opening.begin()
    for _ in range(6):
        server.connection.receive(client.taken())
        if gate.asked and not server.told:
            gate.opening.accept()
            server.connection.receive(b"")
        client.connection.receive(server.taken())
    assert gate.asked == [(PLAIN, b"\0me\0secret")]
    assert server.names() == ["open"]
    assert client.names() == ["open"]


def test_the_server_says_which_mechanisms_it_has() -> None:
    server, _ = door(PLAIN, ANONYMOUS)
    server.connection.receive(SASL_HEADER)
    assert server.taken() == SASL_HEADER + encode_sasl_frame(SaslMechanisms((PLAIN, ANONYMOUS)))


def test_a_client_may_say_everything_at_once() -> None:
    server, gate = door()
    init = encode_sasl_frame(SaslInit(PLAIN, b"\0u\0p"))
    server.connection.receive(
        SASL_HEADER + init + AMQP_HEADER + encode_performative_frame(0, Open("client"))
    )
    assert not server.told
    gate.opening.accept()
    server.connection.receive(b"")
    assert server.names() == ["open"]


def test_a_response_may_come_when_it_is_asked_for() -> None:
    server, gate = door()
    server.connection.receive(SASL_HEADER + encode_sasl_frame(SaslInit(PLAIN)))
    assert not gate.asked
    server.connection.receive(encode_sasl_frame(SaslResponse(b"\0u\0p")))
    assert gate.asked == [(PLAIN, b"\0u\0p")]


def test_whoever_is_not_known_is_turned_away() -> None:
    server, gate = door()
    server.connection.receive(SASL_HEADER + encode_sasl_frame(SaslInit(PLAIN, b"\0u\0p")))
    server.taken()
    gate.opening.reject()
    assert server.taken() == encode_sasl_frame(SaslOutcome(1))
    assert server.connection.finished


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    server, gate = door()
    server.connection.receive(SASL_HEADER + encode_sasl_frame(SaslInit("EXTERNAL", b"")))
    assert not gate.asked
    assert gate.sent_away
    assert server.connection.finished


def test_without_sasl_only_nobody_comes_in() -> None:
    server, gate = door(nobody=True)
    server.connection.receive(AMQP_HEADER + encode_performative_frame(0, Open("client")))
    assert gate.asked == [(ANONYMOUS, b"")]
    assert server.names() == ["open"]


@pytest.mark.parametrize("header", [AMQP_HEADER, TLS_HEADER, b"AMQP\x00\x02\x00\x00", b"GET / HT"])
def test_others_are_told_what_is_spoken(header: bytes) -> None:
    server, gate = door()
    server.connection.receive(header)
    assert server.taken() == SASL_HEADER
    assert gate.sent_away
    assert server.connection.finished


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encode_sasl_frame(SaslResponse(b"x")), id="a response to nothing"),
        pytest.param(encode_sasl_frame(SaslMechanisms((PLAIN,))), id="a server's frame"),
        pytest.param(encode_performative_frame(0, Open("x")), id="a performative"),
        pytest.param(b"\x00\x00\x40\x00\x02\x01\x00\x00", id="much at once"),
        pytest.param(b"\x00\x00\x00\x0c\x02\x01\x00\x00\x00\x53\x41\xff", id="nonsense"),
    ],
)
def test_what_does_not_belong_there_ends_it_without_a_word(data: bytes) -> None:
    server, gate = door()
    server.connection.receive(SASL_HEADER)
    server.taken()
    server.connection.receive(data)
    assert server.connection.finished
    assert not server.taken()
    assert not gate.asked


def test_a_client_that_is_not_let_in_hears_so() -> None:
    client = End("client")
    opening = SaslClient(client.connection, PLAIN, b"", None, client.connection.open)
    client.connection.opening = opening
    with pytest.raises(AuthenticationFailed):
        client.connection.receive(SASL_HEADER + encode_sasl_frame(SaslOutcome(1)))


def test_a_client_takes_no_mechanism_it_was_not_told_to() -> None:
    client = End("client")
    opening = SaslClient(client.connection, PLAIN, b"", None, client.connection.open)
    client.connection.opening = opening
    with pytest.raises(AuthenticationFailed):
        client.connection.receive(SASL_HEADER + encode_sasl_frame(SaslMechanisms((ANONYMOUS,))))


def test_plain_is_read_as_it_is_written() -> None:
    assert decode_plain_response(encode_plain_response("someone", "sécret")) == (
        "someone",
        "sécret".encode(),
    )
    with pytest.raises(AuthenticationFailed):
        decode_plain_response(b"someone")
