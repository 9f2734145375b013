"""From the first byte to an open connection: protocol headers and SASL, for either end.

The server is asked in one of two ways: with SASL first, or, by a client that will not say who it
is, without. What it has to decide, whom to let in, it asks its `SaslAuthenticator`, which may take
its time: meanwhile nothing further is read. Over TLS or not is settled before either of these has a
say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from penstock.core.errors import AuthenticationFailed
from penstock.wire.amqp10.errors import FRAMING_ERROR, ConnectionFault
from penstock.wire.amqp10.frames import AMQP_HEADER, SASL_HEADER
from penstock.wire.amqp10.performatives import (
    SASL_PERFORMATIVES,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_performative,
    encode_sasl_frame,
)

if TYPE_CHECKING:
    from penstock.wire.amqp10.connection import Amqp10Connection

PLAIN: Final = "PLAIN"
ANONYMOUS: Final = "ANONYMOUS"
EXTERNAL: Final = "EXTERNAL"

# Outcomes of SASL.
SASL_OK: Final = 0
SASL_AUTH_FAILED: Final = 1  #: the credentials are wrong


class SaslAuthenticator(Protocol):
    """Who lets clients in."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The ways in which a client may say who it is."""

    @property
    def nobody(self) -> bool:
        """Whether a client may come in without saying anything."""

    def authenticate(self, mechanism: str, response: bytes) -> None:
        """Somebody is there; answered, now or later, by `ServerOpening.let_in` or `turn_away`."""

    def refused(self, why: str) -> None:
        """Somebody was sent away who spoke no language of ours."""


class SaslServer:
    __slots__ = ("_connection", "_gate", "_mechanism", "_sasl", "_through")

    def __init__(self, connection: Amqp10Connection, gate: SaslAuthenticator) -> None:
        self._connection = connection
        self._gate = gate
        self._sasl = False  #: it has begun
        self._through = False  #: the client is who it says it is
        self._mechanism = ""  #: what the client has chosen

    def on_header(self, header: bytes) -> None:
        connection = self._connection
        if header == SASL_HEADER and not self._sasl:
            self._sasl = True
            connection.write(SASL_HEADER)
            connection.write(encode_sasl_frame(SaslMechanisms(self._gate.mechanisms)))
        elif header == AMQP_HEADER and (self._through or (not self._sasl and self._gate.nobody)):
            if not self._through:
                self._gate.authenticate(ANONYMOUS, b"")
            connection.write(AMQP_HEADER)
            connection.opening = None
        else:
            # Whatever else a peer wants, be it TLS, another version or no SASL: this is spoken.
            connection.write(SASL_HEADER)
            self._gate.refused(f"it began with {header!r}")
            connection.finish()

    def on_sasl(self, data: bytes, at: int, stop: int) -> None:
        said = decode_performative(SASL_PERFORMATIVES, data, at, stop)
        if isinstance(said, SaslInit) and not self._mechanism and self._sasl:
            if said.mechanism not in self._gate.mechanisms:
                self._gate.refused(f"mechanism {said.mechanism[:32]!r} is not offered")
                self.turn_away()
                return
            self._mechanism = said.mechanism
            if said.initial_response is None and said.mechanism == PLAIN:
                self._connection.write(encode_sasl_frame(SaslChallenge(b"")))
            else:
                self._authenticate(said.initial_response or b"")
        elif isinstance(said, SaslResponse) and self._mechanism and not self._through:
            self._authenticate(said.response)
        else:
            raise ConnectionFault(FRAMING_ERROR, "a frame of SASL at the wrong time")

    def _authenticate(self, response: bytes) -> None:
        self._connection.reader.held = True
        self._gate.authenticate(self._mechanism, response)

    def let_in(self) -> None:
        """It is who it says it is. What it has sent meanwhile can be received now."""
        self._through = True
        connection = self._connection
        if connection.opening is self and self._sasl:
            connection.write(encode_sasl_frame(SaslOutcome(SASL_OK)))
            connection.reader.awaits_header = True
            connection.reader.held = False

    def turn_away(self) -> None:
        self._connection.write(encode_sasl_frame(SaslOutcome(SASL_AUTH_FAILED)))
        self._connection.finish()


class SaslClient:
    """The other end: says who we are, and calls `ready` when there is a connection to open."""

    __slots__ = ("_connection", "_hostname", "_mechanism", "_ready", "_response", "_through")

    def __init__(
        self,
        connection: Amqp10Connection,
        mechanism: str,
        response: bytes,
        hostname: str | None,
        ready: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._mechanism = mechanism
        self._response = response
        self._hostname = hostname
        self._ready = ready
        self._through = False

    def begin(self) -> None:
        self._connection.write(SASL_HEADER)

    def on_header(self, header: bytes) -> None:
        if header != (AMQP_HEADER if self._through else SASL_HEADER):
            raise ConnectionFault(FRAMING_ERROR, f"the peer speaks {header!r}")
        if self._through:
            self._connection.opening = None
            self._ready()

    def on_sasl(self, data: bytes, at: int, stop: int) -> None:
        connection = self._connection
        match decode_performative(SASL_PERFORMATIVES, data, at, stop):
            case SaslMechanisms(mechanisms):
                if self._mechanism not in mechanisms:
                    offered = ", ".join(mechanisms)
                    raise AuthenticationFailed(f"offered is {offered}, not {self._mechanism}")
                init = SaslInit(self._mechanism, self._response, self._hostname)
                connection.write(encode_sasl_frame(init))
            case SaslChallenge():
                connection.write(encode_sasl_frame(SaslResponse(self._response)))
            case SaslOutcome(code):
                if code != SASL_OK:
                    raise AuthenticationFailed(f"the peer did not let us in (outcome {code})")
                self._through = True
                connection.reader.awaits_header = True
                connection.write(AMQP_HEADER)
            case _:
                raise ConnectionFault(FRAMING_ERROR, "a frame of SASL at the wrong time")


def encode_plain_response(user: str, password: str) -> bytes:
    """The response of PLAIN."""
    return b"\0" + user.encode() + b"\0" + password.encode()


def decode_plain_response(response: bytes) -> tuple[str, bytes]:
    """Who a response of PLAIN says it is, and the password it says it with."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise AuthenticationFailed("this is no response of mechanism PLAIN")
    return parts[1].decode("utf-8", "replace"), parts[2]
