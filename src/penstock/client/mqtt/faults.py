"""The reason codes of MQTT, given their names in `penstock.core.errors`.

A connection that goes is `Lost`, and another may do. What a broker refuses it would refuse again:
that is an error with a name, and says what to do about it.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

from paho.mqtt.reasoncodes import ReasonCode

from penstock.client.errors import BrokerUnreachable
from penstock.client.mqtt.endpoint import Endpoint
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ContentTooLarge,
    NoRoute,
    PenstockError,
    PreconditionFailed,
    ProtocolError,
    ResourceExhausted,
    ResourceLocked,
    Unsupported,
)

NO_SUBSCRIBERS: Final = 0x10
FAILURE: Final = 0x80  #: and above
UNSUPPORTED_VERSION: Final = 0x84
BAD_CLIENT_ID: Final = 0x85
BAD_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
UNAVAILABLE: Final = 0x88
BUSY: Final = 0x89
BAD_FILTER: Final = 0x8F
BAD_TOPIC: Final = 0x90
TOO_LARGE: Final = 0x95
QUOTA: Final = 0x97
BAD_PAYLOAD: Final = 0x99
NO_RETAIN: Final = 0x9A
NO_QOS: Final = 0x9B
NO_SHARING: Final = 0x9E
TAKEN_OVER: Final = 0x8E
TOO_OFTEN: Final = 0x9F
NO_IDENTIFIERS: Final = 0xA1
NO_WILDCARDS: Final = 0xA2

_NAMES: Final[dict[int, type[PenstockError]]] = {
    NOT_AUTHORIZED: AccessRefused,
    BAD_FILTER: PreconditionFailed,
    BAD_TOPIC: PreconditionFailed,
    TOO_LARGE: ContentTooLarge,
    QUOTA: ResourceExhausted,
    BAD_PAYLOAD: PreconditionFailed,
    NO_RETAIN: Unsupported,
    NO_QOS: Unsupported,
    NO_SHARING: Unsupported,
    NO_IDENTIFIERS: Unsupported,
    NO_WILDCARDS: Unsupported,
}


class Lost(Exception):
    """The connection went; `reason` is the broker's word for it, if it gave one."""

    def __init__(self, words: str, reason: int = 0) -> None:
        super().__init__(words)
        self.reason = reason


def unreachable(endpoint: Endpoint, error: Exception) -> BrokerUnreachable:
    """Why no connection came about."""
    if isinstance(error, TimeoutError):
        words = "no answer in time"
    elif isinstance(error, ssl.SSLCertVerificationError):
        words = f"certificate not trusted: {error.verify_message}; see ?cafile="
    elif isinstance(error, socket.gaierror):
        words = "no such host"
    elif isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        words = "connection refused"
    elif isinstance(error, Lost):
        words = f"{error} instead of an answer"
        if endpoint.modern:
            words += " (if it speaks MQTT 3.1.1 only, add ?version=3.1.1)"
    else:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BrokerUnreachable(endpoint.host, endpoint.port, words or type(error).__name__)


def refused(endpoint: Endpoint, reason: ReasonCode) -> PenstockError:
    """Why the broker does not have us as a client."""
    code = reason.value
    if code in (BAD_PASSWORD, NOT_AUTHORIZED):
        who = "a client without a name" if endpoint.user is None else repr(endpoint.user)
        return AuthenticationFailed(
            f"{endpoint} does not let {who} in: wrong name or password (the URL is "
            "mqtt://user:password@host), or a user that may not connect from here or with this "
            "client id (?client_id=)"
        )
    if code == UNSUPPORTED_VERSION:
        other = "?version=3.1.1" if endpoint.modern else "?version=5"
        return Unsupported(
            f"{endpoint} does not speak MQTT {endpoint.version}: add {other} to the URL"
        )
    if code == BAD_CLIENT_ID:
        return AccessRefused(
            f"{endpoint} does not take the client id {endpoint.client_id!r}: "
            "choose another with ?client_id="
        )
    if code in (UNAVAILABLE, BUSY, QUOTA, TOO_OFTEN):
        return BrokerUnreachable(endpoint.host, endpoint.port, f"it answers {str(reason).lower()}")
    return ProtocolError(f"{endpoint} refuses the connection: {str(reason).lower()}")


def declined(what: str, reason: ReasonCode | int, said: str = "") -> PenstockError:
    """Why the broker does not do what was asked: `what` says that, and `said` what it adds."""
    code = reason if isinstance(reason, int) else reason.value
    if code == NO_SUBSCRIBERS:
        return NoRoute(f"{what}: nobody is subscribed")
    if code == NOT_AUTHORIZED:
        return AccessRefused(f"{what}: not authorised; the user needs permission for this topic")
    named = _NAMES.get(code, ProtocolError)
    if code == FAILURE:
        named = AccessRefused  # all that MQTT 3.1.1 has to say
    words = "refused by the broker" if code == FAILURE else str(reason).lower()
    if said:
        words = f"{words}: {said}"
    return named(f"{what}: {words}")


def fatal(endpoint: Endpoint, lost: Lost) -> PenstockError | None:
    """The error a lost connection is when there is no use in trying again."""
    if lost.reason != TAKEN_OVER:
        return None
    return ResourceLocked(
        f"another client has connected to {endpoint} as {endpoint.client_id!r}, and only one may: "
        "choose another name, or share the messages by subscribing to $share/GROUP/FILTER"
    )
