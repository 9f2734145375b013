"""URLs and errors of MQTT.

`mqtt://user:password@host:1883/`, `mqtts://`, `ws://host:15675/ws` and `wss://`, with the options
`version=` (5 or 3.1.1), `client_id=`, `session_expiry=` and `keepalive=` in seconds, `cafile=`.

A lost connection is `MqttConnectionLost`, and the client reconnects. Reason codes of refusals
become the errors of `penstock.core.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from penstock.client import errors
from penstock.client.errors import BrokerUnreachable
from penstock.client.url import BrokerEndpoint, parse_url
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
from penstock.wire.mqtt.reason_codes import ReasonCode

V5: Final = "5"
V311: Final = "3.1.1"

#: The session expiry interval of a session that does not expire.
NEVER_EXPIRES: Final = 0xFFFF_FFFF
KEEPALIVE_SECONDS: Final = 30

_OPTIONS: Final = ("version", "client_id", "session_expiry", "keepalive", "cafile")


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttEndpoint(BrokerEndpoint):
    user: str | None
    password: str | None = field(repr=False)
    client_id: str
    path: str | None = None  #: of the WebSocket, if it is one
    version: str = V5
    session_expiry: int = 0
    keepalive: int = KEEPALIVE_SECONDS

    @property
    def is_persistent(self) -> bool:
        """Whether the session outlives the connection."""
        return self.session_expiry > 0

    @property
    def is_v5(self) -> bool:
        """Whether there are properties and reason codes."""
        return self.version == V5

    def named(self, client_id: str) -> MqttEndpoint:
        """The same broker, with a persistent session of this client id."""
        return replace(
            self, client_id=client_id, session_expiry=self.session_expiry or NEVER_EXPIRES
        )


def parse_endpoint(url: str) -> MqttEndpoint:
    parts = parse_url(url, _OPTIONS)
    websocket = parts.scheme in ("ws", "wss")
    if not websocket and parts.path not in ("", "/"):
        raise parts.invalid("MQTT has no virtual hosts, so nothing but a / may follow the port")
    version = parts.options.get("version", V5)
    if version not in (V5, V311):
        raise parts.invalid(f"version should be {V5} or {V311}")
    default = DEFAULT_PORTS[parts.scheme]
    return MqttEndpoint(
        host=parts.host,
        port=default if parts.port is None else parts.port,
        others=[(host, port or default) for host, port in parts.others],
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


_ERRORS: Final[dict[int, type[PenstockError]]] = {
    ReasonCode.NOT_AUTHORIZED: AccessRefused,
    ReasonCode.TOPIC_FILTER_INVALID: PreconditionFailed,
    ReasonCode.TOPIC_NAME_INVALID: PreconditionFailed,
    ReasonCode.PACKET_TOO_LARGE: ContentTooLarge,
    ReasonCode.QUOTA_EXCEEDED: ResourceExhausted,
    ReasonCode.PAYLOAD_FORMAT_INVALID: PreconditionFailed,
    ReasonCode.RETAIN_NOT_SUPPORTED: Unsupported,
    ReasonCode.QOS_NOT_SUPPORTED: Unsupported,
    ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Unsupported,
    ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Unsupported,
    ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Unsupported,
}


_UNAVAILABLE: Final = (
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY,
    ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.CONNECTION_RATE_EXCEEDED,
)


class MqttConnectionLost(Exception):
    """The connection was lost; `reason` is the reason code of the broker, or 0."""

    def __init__(self, text: str, reason: int = 0) -> None:
        super().__init__(text)
        self.reason = reason


def connect_error(endpoint: MqttEndpoint, error: Exception) -> PenstockError:
    """The error to raise when a connection could not be opened."""
    if isinstance(error, MqttConnectionLost):
        reason = str(error)
        if endpoint.is_v5:
            reason += " (if the broker speaks MQTT 3.1.1 only, add ?version=3.1.1)"
        return BrokerUnreachable(endpoint.host, endpoint.port, reason)
    return errors.connect_error(endpoint.host, endpoint.port, error)


def connack_error(endpoint: MqttEndpoint, reason: PahoReasonCode) -> PenstockError:
    """The error for a CONNACK that refuses the connection."""
    code = reason.value
    if code in (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED):
        who = "an anonymous client" if endpoint.user is None else repr(endpoint.user)
        return AuthenticationFailed(
            f"{endpoint}: authentication failed for {who}: wrong user or password (the URL is "
            "mqtt://user:password@host), or the user may not connect from this address or with "
            "this client id (?client_id=)"
        )
    if code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
        other = "?version=3.1.1" if endpoint.is_v5 else "?version=5"
        return Unsupported(
            f"{endpoint} does not speak MQTT {endpoint.version}: add {other} to the URL"
        )
    if code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID:
        return AccessRefused(
            f"{endpoint} refused the client id {endpoint.client_id!r}: set another with ?client_id="
        )
    if code in (
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
    ):
        return BrokerUnreachable(endpoint.host, endpoint.port, str(reason).lower())
    return ProtocolError(f"{endpoint} refused the connection: {str(reason).lower()}")


def reason_code_error(what: str, reason: PahoReasonCode | int, detail: str = "") -> PenstockError:
    """The error for an operation (`what`) that the broker refused; `detail` is a reason string."""
    code = reason if isinstance(reason, int) else reason.value
    if code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
        return NoRoute(f"{what}: no client is subscribed")
    if code == ReasonCode.NOT_AUTHORIZED:
        return AccessRefused(f"{what}: not authorised; the user needs permission for this topic")
    named = _ERRORS.get(code, ProtocolError)
    if code == ReasonCode.UNSPECIFIED_ERROR:
        named = AccessRefused  # MQTT 3.1.1 has no other reason code
    words = "refused by the broker" if code == ReasonCode.UNSPECIFIED_ERROR else str(reason).lower()
    if detail:
        words = f"{words}: {detail}"
    return named(f"{what}: {words}")


def permanent_error(endpoint: MqttEndpoint, lost: MqttConnectionLost) -> PenstockError | None:
    """The error of a lost connection that must not be reopened."""
    if lost.reason != ReasonCode.SESSION_TAKEN_OVER:
        return None
    return ResourceLocked(
        f"session taken over: another client has connected to {endpoint} as "
        f"{endpoint.client_id!r}; choose another name, or share the messages by subscribing to "
        "$share/GROUP/FILTER"
    )
