"""The handshake of a connection: protocol headers and SASL, for either end.

A client begins with SASL, or without if the server allows anonymous clients. The server's
`SaslAuthenticator` decides, now or later; until then nothing further is read. TLS is negotiated
before.
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
    @property
    def mechanisms(self) -> tuple[str, ...]: ...

    @property
    def allows_anonymous(self) -> bool:
        """Whether a client may connect without SASL."""

    def authenticate(self, mechanism: str, response: bytes) -> None:
        """Answered, now or later, by `SaslServer.accept` or `reject`."""

    def on_refused(self, reason: str) -> None:
        """A client was refused for its protocol header or mechanism."""


class SaslServer:
    __slots__ = ("_authenticated", "_authenticator", "_connection", "_mechanism", "_sasl")

    def __init__(self, connection: Amqp10Connection, authenticator: SaslAuthenticator) -> None:
        self._connection = connection
        self._authenticator = authenticator
        self._sasl = False  #: SASL has begun
        self._authenticated = False
        self._mechanism = ""  #: chosen by the client

    def on_header(self, header: bytes) -> None:
        connection = self._connection
        if header == SASL_HEADER and not self._sasl:
            self._sasl = True
            connection.write(SASL_HEADER)
            connection.write(encode_sasl_frame(SaslMechanisms(self._authenticator.mechanisms)))
        elif header == AMQP_HEADER and (
            self._authenticated or (not self._sasl and self._authenticator.allows_anonymous)
        ):
            if not self._authenticated:
                self._authenticator.authenticate(ANONYMOUS, b"")
            connection.write(AMQP_HEADER)
            connection.opening = None
        else:
            # TLS, another version or no SASL: answer with the header that is supported.
            connection.write(SASL_HEADER)
            self._authenticator.on_refused(f"protocol header {header!r}")
            connection.finish()

    def on_sasl(self, data: bytes, at: int, stop: int) -> None:
        frame = decode_performative(SASL_PERFORMATIVES, data, at, stop)
        if isinstance(frame, SaslInit) and not self._mechanism and self._sasl:
            if frame.mechanism not in self._authenticator.mechanisms:
                self._authenticator.on_refused(f"mechanism {frame.mechanism[:32]!r} is not offered")
                self.reject()
                return
            self._mechanism = frame.mechanism
            if frame.initial_response is None and frame.mechanism == PLAIN:
                self._connection.write(encode_sasl_frame(SaslChallenge(b"")))
            else:
                self._authenticate(frame.initial_response or b"")
        elif isinstance(frame, SaslResponse) and self._mechanism and not self._authenticated:
            self._authenticate(frame.response)
        else:
            raise ConnectionFault(FRAMING_ERROR, "unexpected SASL frame")

    def _authenticate(self, response: bytes) -> None:
        self._connection.reader.held = True
        self._authenticator.authenticate(self._mechanism, response)

    def accept(self) -> None:
        """The client is authenticated; reading continues."""
        self._authenticated = True
        connection = self._connection
        if connection.opening is self and self._sasl:
            connection.write(encode_sasl_frame(SaslOutcome(SASL_OK)))
            connection.reader.awaits_header = True
            connection.reader.held = False

    def reject(self) -> None:
        self._connection.write(encode_sasl_frame(SaslOutcome(SASL_AUTH_FAILED)))
        self._connection.finish()


class SaslClient:
    """Authenticates us, then calls `ready`: the connection can be opened."""

    __slots__ = ("_authenticated", "_connection", "_hostname", "_mechanism", "_ready", "_response")

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
        self._authenticated = False

    def begin(self) -> None:
        self._connection.write(SASL_HEADER)

    def on_header(self, header: bytes) -> None:
        if header != (AMQP_HEADER if self._authenticated else SASL_HEADER):
            raise ConnectionFault(FRAMING_ERROR, f"unexpected protocol header {header!r}")
        if self._authenticated:
            self._connection.opening = None
            self._ready()

    def on_sasl(self, data: bytes, at: int, stop: int) -> None:
        connection = self._connection
        match decode_performative(SASL_PERFORMATIVES, data, at, stop):
            case SaslMechanisms(mechanisms):
                if self._mechanism not in mechanisms:
                    offered = ", ".join(mechanisms)
                    raise AuthenticationFailed(
                        f"the server offers {offered}, not {self._mechanism}"
                    )
                init = SaslInit(self._mechanism, self._response, self._hostname)
                connection.write(encode_sasl_frame(init))
            case SaslChallenge():
                connection.write(encode_sasl_frame(SaslResponse(self._response)))
            case SaslOutcome(code):
                if code != SASL_OK:
                    raise AuthenticationFailed(f"SASL outcome {code}")
                self._authenticated = True
                connection.reader.awaits_header = True
                connection.write(AMQP_HEADER)
            case _:
                raise ConnectionFault(FRAMING_ERROR, "unexpected SASL frame")


def encode_plain_response(user: str, password: str) -> bytes:
    return b"\0" + user.encode() + b"\0" + password.encode()


def decode_plain_response(response: bytes) -> tuple[str, bytes]:
    """The user and the password."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise AuthenticationFailed("invalid response of SASL mechanism PLAIN")
    return parts[1].decode("utf-8", "replace"), parts[2]
