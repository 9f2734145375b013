"""Channel 0 of a client's connection: handshake, `connection.blocked`, close.

Takes methods, returns the bytes to send. A handshake method in the wrong state is an error. Sockets
and timeouts are the client's.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from penstock.core.errors import (
    AuthenticationFailed,
    CommandInvalid,
    NotAllowed,
    NotFound,
    PenstockError,
)
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.errors import AmqpConnectionLost, error_from_close
from penstock.wire.amqp091.frames import FRAME_MAX
from penstock.wire.amqp091.methods import MethodArguments, ReceivedMethod, encode_method_frame

CHANNEL_MAX: Final = 0xFFFF
_ACCESS_REFUSED: Final = 403
_REPLY_SUCCESS: Final = 200
_CAPABILITIES: Final = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class ClientConnectionState(Enum):
    GREETING = auto()  #: the protocol header is sent
    LOGIN = auto()  #: `connection.start-ok` is sent
    TUNED = auto()  #: `connection.tune-ok` and `connection.open` are sent
    OPEN = auto()
    CLOSING = auto()  #: `connection.close` is sent
    CLOSED = auto()  #: by either side; `ended` is the reason


#: The state in which each handshake method is valid.
_EXPECTED_STATE: Final = {
    methods.CONNECTION_START: ClientConnectionState.GREETING,
    methods.CONNECTION_TUNE: ClientConnectionState.LOGIN,
    methods.CONNECTION_OPEN_OK: ClientConnectionState.TUNED,
}
_OPENING_STATES: Final = frozenset(_EXPECTED_STATE.values())


class ChannelZero:
    def __init__(self, address: AmqpAddress, purpose: str, *, heartbeat: int | None = None) -> None:
        """`purpose` is the connection's name at the broker; a heartbeat of 0 disables it."""
        self.stage = ClientConnectionState.GREETING
        self.ended: PenstockError | None = None  #: the reason, once the connection is closed
        self.blocked = False  #: the broker has sent `connection.blocked`
        self.greeting: dict[str, Any] = {}  #: the broker's server properties
        self.frame_max = FRAME_MAX
        self.channel_max = CHANNEL_MAX
        self.heartbeat = address.heartbeat if heartbeat is None else heartbeat  #: seconds
        self._address = address
        self._purpose = purpose

    def on_method(self, received: ReceivedMethod) -> bytes:
        """Handle a method of channel 0; returns the answer."""
        method, arguments = received
        expected = _EXPECTED_STATE.get(method.id)
        if expected not in (None, self.stage):
            raise CommandInvalid(
                f"{self._address}: unexpected {method.name} in state {self.stage.name}"
            )
        match method.id:
            case methods.CONNECTION_START:
                return self._log_in(arguments)
            case methods.CONNECTION_TUNE:
                return self._tune(arguments)
            case methods.CONNECTION_OPEN_OK:
                self.stage = ClientConnectionState.OPEN
            case methods.CONNECTION_BLOCKED | methods.CONNECTION_UNBLOCKED:
                self.blocked = method.id == methods.CONNECTION_BLOCKED
            case methods.CONNECTION_CLOSE:
                self.ended = self._close_error(arguments.reply_code, arguments.reply_text)
                self.stage = ClientConnectionState.CLOSED
                return encode_method_frame(0, methods.CONNECTION_CLOSE_OK)
            case methods.CONNECTION_CLOSE_OK:
                self.ended = AmqpConnectionLost(f"{self._address}: connection closed by the client")
                self.stage = ClientConnectionState.CLOSED
        return b""

    def close(self) -> bytes:
        self.stage = ClientConnectionState.CLOSING
        return encode_method_frame(0, methods.CONNECTION_CLOSE, reply_code=_REPLY_SUCCESS)

    def connection_lost_error(self, reason: str = "") -> PenstockError:
        """The error for a connection that ended without `connection.close`."""
        capabilities = self.greeting.get("capabilities") or {}
        if self.stage is ClientConnectionState.LOGIN and not capabilities.get(
            "authentication_failure_close"
        ):
            return self._authentication_failed()  # the standard has no other answer to a login
        detail = f": {reason}" if reason else ""
        return AmqpConnectionLost(f"{self._address} has closed the connection{detail}")

    def _log_in(self, start: MethodArguments) -> bytes:
        self.greeting = start.server_properties
        self.stage = ClientConnectionState.LOGIN
        return encode_method_frame(
            0,
            methods.CONNECTION_START_OK,
            client_properties={
                "product": "Penstock",
                "connection_name": self._address.name or self._purpose,
                "capabilities": _CAPABILITIES,
            },
            mechanism="PLAIN",
            response=f"\0{self._address.user}\0{self._address.password}",
            locale="en_US",
        )

    def _tune(self, tune: MethodArguments) -> bytes:
        self.stage = ClientConnectionState.TUNED
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self.channel_max = tune.channel_max or CHANNEL_MAX
        if self.heartbeat and tune.heartbeat:
            self.heartbeat = min(self.heartbeat, tune.heartbeat)
        return encode_method_frame(
            0,
            methods.CONNECTION_TUNE_OK,
            channel_max=self.channel_max,
            frame_max=self.frame_max,
            heartbeat=self.heartbeat,
        ) + encode_method_frame(0, methods.CONNECTION_OPEN, virtual_host=self._address.vhost)

    def _close_error(self, code: int, text: str) -> PenstockError:
        error = error_from_close(code, text, self._address)
        if self.stage not in _OPENING_STATES:
            return error
        if code == _ACCESS_REFUSED:
            return self._authentication_failed()
        if isinstance(error, NotAllowed | NotFound):
            vhost = self._address.vhost
            return NotFound(f"{self._address} refused the virtual host {vhost!r}: {text}")
        return error

    def _authentication_failed(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self._address}: authentication failed for user {self._address.user!r}: "
            "wrong name or password, or the user may not connect from this host"
        )
