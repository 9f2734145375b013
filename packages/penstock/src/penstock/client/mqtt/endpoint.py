"""What a URL says of a broker that speaks MQTT, and of the session to have with it.

`mqtt://user:password@host:1883/`, `mqtts://`, `ws://host:15675/ws` and `wss://`. The rest is in the
query: `version=3.1.1` (5 unless said), `client_id=`, `session_expiry=` seconds for which the broker
keeps the session when we are away, `keepalive=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from paho.mqtt.reasoncodes import ReasonCode

from penstock.client import errors
from penstock.client.errors import BrokerUnreachable
from penstock.client.url import create_tls_context, format_host_port, parse_url
from penstock.core.addresses import DEFAULT_PORTS
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

V5: Final = "5"
V311: Final = "3.1.1"

#: What the standard calls a session that does not expire.
NEVER_EXPIRES: Final = 0xFFFF_FFFF
#: A peer that vanished without a word is missed after half as much again.
KEEPALIVE_SECONDS: Final = 30

_OPTIONS: Final = ("version", "client_id", "session_expiry", "keepalive", "cafile")


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttEndpoint:
    host: str
    port: int
    user: str | None
    password: str | None = field(repr=False)
    client_id: str
    path: str | None = None  #: of the WebSocket, where it is one
    tls: bool = False
    cafile: str | None = None
    version: str = V5
    session_expiry: int = 0
    keepalive: int = KEEPALIVE_SECONDS

    @property
    def lasting(self) -> bool:
        """Whether the broker keeps the session while we are away."""
        return self.session_expiry > 0

    @property
    def is_v5(self) -> bool:
        """Whether there are properties and reason codes."""
        return self.version == V5

    def named(self, client_id: str) -> MqttEndpoint:
        """The same broker, with a session of this name that lasts."""
        return replace(
            self, client_id=client_id, session_expiry=self.session_expiry or NEVER_EXPIRES
        )

    def tls_context(self) -> ssl.SSLContext | None:
        return create_tls_context(self.cafile) if self.tls else None

    def __str__(self) -> str:
        return format_host_port(self.host, self.port)


def parse_endpoint(url: str) -> MqttEndpoint:
    parts = parse_url(url, _OPTIONS)
    websocket = parts.scheme in ("ws", "wss")
    if not websocket and parts.path not in ("", "/"):
        raise parts.refused("MQTT has no virtual hosts, so nothing but a / may follow the port")
    version = parts.options.get("version", V5)
    if version not in (V5, V311):
        raise parts.refused(f"version should be {V5} or {V311}")
    return MqttEndpoint(
        host=parts.host,
        port=DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port,
        user=parts.user,
        password=parts.password,
        client_id=parts.options.get("client_id") or f"penstock-{uuid4().hex[:12]}",
        path=(parts.path if parts.path not in ("", "/") else "/ws") if websocket else None,
        tls=parts.scheme in ("mqtts", "wss"),
        cafile=parts.options.get("cafile"),
        version=version,
        session_expiry=parts.seconds("session_expiry", 0, 0, NEVER_EXPIRES),
        keepalive=parts.seconds("keepalive", KEEPALIVE_SECONDS, 1, 0xFFFF),
    )


# The reason codes of MQTT, given their names in `penstock.core.errors`.
#
# A connection that goes is `MqttConnectionLost`, and another may do. What a broker refuses it would
# refuse again: that is an error with a name, and says what to do about it.

NO_MATCHING_SUBSCRIBERS: Final = 0x10
UNSPECIFIED_ERROR: Final = 0x80  #: and above
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_TOO_LARGE: Final = 0x95
QUOTA_EXCEEDED: Final = 0x97
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
SESSION_TAKEN_OVER: Final = 0x8E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

_ERRORS: Final[dict[int, type[PenstockError]]] = {
    NOT_AUTHORIZED: AccessRefused,
    TOPIC_FILTER_INVALID: PreconditionFailed,
    TOPIC_NAME_INVALID: PreconditionFailed,
    PACKET_TOO_LARGE: ContentTooLarge,
    QUOTA_EXCEEDED: ResourceExhausted,
    PAYLOAD_FORMAT_INVALID: PreconditionFailed,
    RETAIN_NOT_SUPPORTED: Unsupported,
    QOS_NOT_SUPPORTED: Unsupported,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Unsupported,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Unsupported,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Unsupported,
}


class MqttConnectionLost(Exception):
    """The connection went; `reason` is the broker's word for it, if it gave one."""

    def __init__(self, words: str, reason: int = 0) -> None:
        super().__init__(words)
        self.reason = reason


def connect_error(endpoint: MqttEndpoint, error: Exception) -> PenstockError:
    """Why no connection came about."""
    if isinstance(error, MqttConnectionLost):
        reason = str(error)
        if endpoint.is_v5:
            reason += " (if the broker speaks MQTT 3.1.1 only, add ?version=3.1.1)"
        return BrokerUnreachable(endpoint.host, endpoint.port, reason)
    return errors.connect_error(endpoint.host, endpoint.port, error)


def connack_error(endpoint: MqttEndpoint, reason: ReasonCode) -> PenstockError:
    """Why the broker does not have us as a client."""
    code = reason.value
    if code in (BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED):
        who = "a client without a name" if endpoint.user is None else repr(endpoint.user)
        return AuthenticationFailed(
            f"{endpoint} does not let {who} in: wrong name or password (the URL is "
            "mqtt://user:password@host), or a user that may not connect from here or with this "
            "client id (?client_id=)"
        )
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        other = "?version=3.1.1" if endpoint.is_v5 else "?version=5"
        return Unsupported(
            f"{endpoint} does not speak MQTT {endpoint.version}: add {other} to the URL"
        )
    if code == CLIENT_IDENTIFIER_NOT_VALID:
        return AccessRefused(
            f"{endpoint} does not take the client id {endpoint.client_id!r}: "
            "choose another with ?client_id="
        )
    if code in (SERVER_UNAVAILABLE, SERVER_BUSY, QUOTA_EXCEEDED, CONNECTION_RATE_EXCEEDED):
        return BrokerUnreachable(endpoint.host, endpoint.port, f"it answers {str(reason).lower()}")
    return ProtocolError(f"{endpoint} refuses the connection: {str(reason).lower()}")


def reason_code_error(what: str, reason: ReasonCode | int, detail: str = "") -> PenstockError:
    """Why the broker does not do what was asked: `what` says that, and `detail` what it adds."""
    code = reason if isinstance(reason, int) else reason.value
    if code == NO_MATCHING_SUBSCRIBERS:
        return NoRoute(f"{what}: nobody is subscribed")
    if code == NOT_AUTHORIZED:
        return AccessRefused(f"{what}: not authorised; the user needs permission for this topic")
    named = _ERRORS.get(code, ProtocolError)
    if code == UNSPECIFIED_ERROR:
        named = AccessRefused  # all that MQTT 3.1.1 has to say
    words = "refused by the broker" if code == UNSPECIFIED_ERROR else str(reason).lower()
    if detail:
        words = f"{words}: {detail}"
    return named(f"{what}: {words}")


def permanent_error(endpoint: MqttEndpoint, lost: MqttConnectionLost) -> PenstockError | None:
    """The error a lost connection is when there is no use in trying again."""
    if lost.reason != SESSION_TAKEN_OVER:
        return None
    return ResourceLocked(
        f"another client has connected to {endpoint} as {endpoint.client_id!r}, and only one may: "
        "choose another name, or share the messages by subscribing to $share/GROUP/FILTER"
    )
