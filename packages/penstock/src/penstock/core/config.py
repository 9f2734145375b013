"""The settings: type, default and description of each.

Values come from flags, the environment (`PENSTOCK_BROKER__HEARTBEAT=30`), `penstock.toml` and the
defaults here, in this order; `config_sources.py` reads them. Programs build the models directly:
`BrokerSettings(listen=["amqp://127.0.0.1:0"])` reads nothing from outside.
"""

from __future__ import annotations

import dataclasses
import json
import os
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from penstock.core.addresses import is_loopback, parse_address
from penstock.core.redaction import redact_value
from penstock.core.resources import memory_total
from penstock.core.settings_model import (
    After,
    Before,
    Field,
    field_default,
    field_descriptions,
    field_types,
    settings_model,
)
from penstock.core.units import Bytes, GiB, KiB, MiB, Seconds, Unit, WholeSeconds, parse_bytes

ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
#: Where a broker listens by default.
LISTEN: Final = (
    "amqp://127.0.0.1:5672",
    "mqtt://127.0.0.1:1883",
    "ws://127.0.0.1:15675",
    "padres://127.0.0.1:5680",
    "http://127.0.0.1:15672",
)
_SHARE: Final = "should be a share of memory from 0 to 1 (0.25, 25%), or bytes (2GiB)"


def data_home() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "penstock"


def split_texts(value: object) -> object:
    """A list in the environment or a flag: separated by commas, or JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except RecursionError:
            raise ValueError("nested too deeply") from None
    return [part.strip() for part in value.split(",") if part.strip()]


def _addresses(urls: list[str]) -> list[str]:
    return [str(parse_address(url)) for url in urls]


def _share_or_bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text) if text.startswith("0.") else parse_bytes(text)
    except ValueError:
        raise ValueError(_SHARE) from None


def _share(value: float | int) -> float | int:
    if value <= 0 or (value > 1 and value != int(value)):
        raise ValueError(_SHARE)
    return value if value <= 1 else int(value)


def _networks(values: list[str]) -> list[str]:
    for value in values:
        try:
            ip_network(value, strict=False)
        except ValueError:
            raise ValueError(f"{value} is no address and no network such as 10.0.0.0/8") from None
    return values


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:  # ~nobody
        raise ValueError(str(error)) from None


TextList = Annotated[list[str], Before(split_texts)]
AddressList = Annotated[list[str], Before(split_texts), After(_addresses)]
NetworkList = Annotated[list[str], Before(split_texts), After(_networks)]
ShareOrBytes = Annotated[float | int, Before(_share_or_bytes), After(_share)]
UserPath = Annotated[Path, After(_expand)]
#: Signature algorithms of tokens (RFC 7518, RFC 8037).
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
ALGORITHMS: Final = get_args(Algorithm)
Algorithms = Annotated[list[Algorithm], Before(split_texts)]
AuthBackends = Annotated[list[Literal["internal", "oauth2", "ldap"]], Before(split_texts)]


def check_issuer_url(url: str) -> str:
    """Raises `ValueError` unless nobody on the way to a token issuer can replace its keys."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    local = host == "localhost" or (host != "" and is_loopback(host))
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        raise ValueError(f"{url} should be an https:// URL (http:// on loopback only)")
    return url


@settings_model
class LogSettings:
    """Log output of the process."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest severity that is logged."""
    format: Literal["auto", "console", "json"] = "auto"
    """Log format; auto is console in a terminal, JSON lines otherwise."""


@settings_model
class TlsSettings:
    """Certificates of the listeners that speak TLS (PEM files)."""

    certificate: UserPath | None = None
    """The server's certificate, followed by intermediate certificates."""
    key: UserPath | None = None
    """The certificate's private key."""
    authority: UserPath | None = None
    """Certificate authorities for client certificates, which are then requested and verified."""
    verify_peer: bool = False
    """Whether clients must present a certificate signed by an authority."""
    login_from: Literal["common_name", "distinguished_name", "subject_alternative_name"] = (
        "common_name"
    )
    """The part of a client certificate that is the user name."""
    login_san_type: Literal["dns", "email", "ip", "uri"] = "dns"
    """The type of the subject alternative name that is the user name."""
    login_san_index: int = Field(default=0, ge=0)
    """Which alternative name of that type, counted from 0."""

    def check(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key are set together or not at all")
        if self.verify_peer and self.authority is None:
            raise ValueError("verify_peer needs an authority to check certificates against")


@settings_model
class OAuth2Settings:
    """Tokens of an OAuth 2 or OpenID Connect issuer as credentials."""

    resource_server_id: str = Field(default="", max_length=255)
    """The broker's name in the audience of tokens; with a dot, the prefix of its scopes."""
    issuer: str = ""
    """The issuer's URL, whose metadata lead to its keys; tokens must name it in `iss`."""
    jwks_url: str = ""
    """The URL of the issuer's public keys, if they are not to be discovered."""
    authority: UserPath | None = None
    """Certificate authorities for these URLs; those of the system by default."""
    algorithms: Algorithms = Field(default_factory=lambda: list(ALGORITHMS))
    """Accepted signatures; symmetric ones are never accepted."""
    verify_audience: bool = True
    """Whether the audience must contain resource_server_id."""
    username_claims: TextList = Field(default_factory=lambda: ["sub", "client_id"])
    """Claims with the user name; the first that is present counts."""
    scope_claims: TextList = Field(default_factory=lambda: ["scope"])
    """Claims with scopes; a path to a nested claim has dots."""
    scope_prefix: str | None = None
    """The prefix of the broker's scopes, if it is not resource_server_id and a dot."""
    scope_aliases: dict[str, TextList] = Field(default_factory=dict)
    """Scopes that a role or scope of the issuer stands for."""
    clock_skew: Seconds = Field(default=30.0, ge=0, le=300)
    """How far the issuer's clock may be off."""
    keys_lifetime: Seconds = Field(default=3600.0, gt=0)
    """How long keys are used before they are fetched again."""
    client_id: str = ""
    """The console's name at the issuer; with it, users can sign in there."""
    client_secret: str = Field(default="", repr=False)
    """The console's password at the issuer, if it has one."""
    scopes: TextList = Field(default_factory=lambda: ["openid", "profile"])
    """Scopes that the console requests when a user signs in."""

    def check(self) -> None:
        for url in filter(None, (self.issuer, self.jwks_url)):
            check_issuer_url(url)
        if self.client_id and not self.issuer:
            raise ValueError("client_id needs issuer, where users sign in")


@settings_model
class LdapSettings:
    """Users of an LDAP directory."""

    urls: TextList = Field(default_factory=list)
    """Servers, ldaps://host or ldap://host:port; the first that answers is used."""
    start_tls: bool = False
    """Whether connections to ldap:// servers are upgraded to TLS."""
    authority: UserPath | None = None
    """Certificate authorities of the servers; those of the system by default."""
    user_dn_pattern: str = ""
    """The DN of a user, with ${username}: uid=${username},ou=people,dc=example."""
    user_base: str = ""
    """Where users are searched, if there is no pattern."""
    user_filter: str = "(uid=${username})"
    """The filter of that search."""
    bind_dn: str = ""
    """The user that searches; without one, users of a pattern search their own groups."""
    bind_password: str = Field(default="", repr=False)
    """The password of that user."""
    group_base: str = ""
    """Where groups are searched; empty for no groups."""
    group_filter: str = "(member=${user_dn})"
    """The filter of groups that contain a user, with ${user_dn} or ${username}."""
    group_attribute: str = Field(default="cn", min_length=1)
    """The attribute with a group's name."""
    groups: dict[str, TextList] = Field(default_factory=dict)
    """Scopes that a group grants: tag:administrator, read:vhost/name; the group * is everybody."""
    timeout: Seconds = Field(default=5.0, gt=0)
    """How long a server may take to answer."""
    cache: Seconds = Field(default=15.0, ge=0)
    """How long an accepted login is not checked again."""

    def check(self) -> None:
        for url in self.urls:
            parts = urlsplit(url)
            host = parts.hostname or ""
            local = host == "localhost" or (host != "" and is_loopback(host))
            if parts.scheme not in ("ldap", "ldaps") or not host:
                raise ValueError(f"{url} should be ldaps://host or ldap://host")
            if parts.scheme == "ldap" and not self.start_tls and not local:
                raise ValueError(f"{url} sends passwords in clear: use ldaps:// or start_tls")
            if parts.scheme == "ldaps" and self.start_tls:
                raise ValueError(f"{url} has TLS already: start_tls is for ldap://")
        if self.urls and bool(self.user_dn_pattern) == bool(self.user_base):
            raise ValueError("users are found by user_dn_pattern or by user_base")
        if self.user_dn_pattern and "${username}" not in self.user_dn_pattern:
            raise ValueError("user_dn_pattern should contain ${username}")


@settings_model
class MqttSettings:
    """Settings of MQTT."""

    exchange: str = Field(default="amq.topic", min_length=1, max_length=255)
    """The topic exchange for MQTT publishes and subscriptions."""
    anonymous: bool = True
    """Whether local clients may omit the user name and get the permissions of anonymous_user."""
    anonymous_websocket: bool = False
    """Whether that also applies over WebSocket, which any page in a browser can use."""
    max_packet_bytes: Bytes = Field(default=268_435_460, ge=KiB, le=268_435_460)
    """The largest packet a client may send."""
    max_inflight: int = Field(default=2048, ge=1, le=65535)
    """The most unacknowledged messages of one client; clients may ask for fewer."""
    receive_maximum: int = Field(default=2048, ge=1, le=65535)
    """The most unacknowledged QoS 1 and 2 messages that one client may send."""
    topic_alias_maximum: int = Field(default=64, ge=0, le=65535)
    """The most topic aliases of a client."""
    max_queued: int = Field(default=100_000, ge=0)
    """The most queued messages per client; the oldest is dropped first; 0 for no limit."""
    max_session_expiry: WholeSeconds = Field(default=30 * 86_400, ge=0, le=0xFFFFFFFF)
    """The longest session expiry interval; MQTT 3.1.1 clients always get it."""
    keep_alive: WholeSeconds = Field(default=0, ge=0, le=65535)
    """The longest keep alive of a client; 0 for no limit."""
    sys_interval: Seconds = Field(default=10.0, ge=0)
    """Seconds between publishes of broker metrics under $SYS; 0 for none."""


@settings_model
class PadresSettings:
    """Settings of PADRES clients."""

    exchange: str = Field(default="content", min_length=1, max_length=255)
    """The x-content exchange shared with PADRES clients; declared when needed."""
    stream: str = Field(default="publications", max_length=255)
    """The stream that stores publications; empty for none."""
    stream_bytes: Bytes = Field(default=GiB, ge=0)
    """The most bytes of that stream; the oldest are deleted first; 0 for no limit."""
    conformance: bool = True
    """Whether publications must conform to an advertisement of the client."""
    max_frame_bytes: Bytes = Field(default=MiB, ge=4 * KiB, le=64 * MiB)
    """The largest frame a client or another broker may send."""
    max_queued: int = Field(default=100_000, ge=0)
    """Publications that may wait for one client, the oldest dropped first; 0 for any number."""


@settings_model
class OverlaySettings:
    """Content-based routing between brokers."""

    id: str = Field(default="Broker1", pattern=r"[A-Za-z0-9.:/]+", max_length=64)
    """The broker's unique id in the overlay; letters, digits, . : and /."""
    uri: str = ""
    """The address for neighbours, padres://host:port/ID; default: the first padres listener."""
    neighbours: TextList = Field(default_factory=list)
    """Brokers to connect to, padres://host:port/ID each."""
    accept_links_from: TextList = Field(default_factory=list)
    """Ids of brokers that may connect to this one, besides `neighbours`."""
    accept_commands_from: TextList = Field(default_factory=list)
    """Ids of neighbours whose BROKER_CONTROL, BROKER_MONITOR and GLOBAL_FD are accepted."""
    user: str = ""
    """User for connections to neighbours without a user in their address; needs the tag overlay."""
    password: str = Field(default="", repr=False)
    """The password of that user."""
    retry_limit: int = Field(default=30, ge=0)
    """The most failed connection attempts in a row; 0 for no limit."""
    retry_pause: Seconds = Field(default=10.0, gt=0)
    """Seconds between two connection attempts."""
    cycles: Literal["OFF", "FIXED", "DYNAMIC"] = "OFF"
    """Cycles of links: none; allowed with fixed trees; allowed with dynamic routing."""
    subscription_covering: Literal["OFF", "LAZY", "ACTIVE"] = "OFF"
    """Whether covered subscriptions are not forwarded (LAZY), or also withdrawn (ACTIVE)."""
    advertisement_covering: Literal["OFF", "LAZY"] = "OFF"
    """Whether covered advertisements are not forwarded; without cycles only."""
    split_composites: bool = False
    """Whether composite subscriptions are evaluated where the routes of their parts divide."""
    ordered_by: str = ""
    """The id of the broker that orders all publications; empty for no total order."""
    max_asked: int = Field(default=100_000, ge=0)
    """The most registrations of one client, unless conformance is off; 0 for no limit."""
    heartbeat: bool = False
    """Whether heartbeats are sent to neighbours."""
    heartbeat_interval: Seconds = Field(default=3.0, gt=0)
    """Seconds between two heartbeats."""
    heartbeat_timeout: Seconds = Field(default=5.0, gt=0)
    """Seconds until an unanswered heartbeat counts as missed."""
    heartbeat_threshold: int = Field(default=3, ge=1)
    """Missed heartbeats after which a neighbour counts as failed."""
    info_interval: Seconds = Field(default=0.0, ge=0)
    """Seconds between two BROKER_INFO publications; 0 for publication on request only."""
    info_full: bool = True
    """Whether BROKER_INFO lists advertisements and subscriptions, or only counts them."""
    trace_all: bool = False
    """Whether every message is traced (TRACEROUTE_MESSAGE)."""


@settings_model
class ClusterSettings:
    """Replication to other machines, and failover."""

    url: str = Field(default="", repr=False)
    """Where members agree who leads: etcd://host:2379/NAME or postgresql://…; empty for none."""
    follow: str = ""
    """The leader to copy, penstock://host:port; promotion is then by hand."""
    listen: str = ""
    """The address for followers, penstock://host:port, or penstocks:// for TLS."""
    advertise: str = ""
    """The address that others use for it, if it differs; penstock://host:port."""
    node: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=64)
    """The name of this member; the default is chosen once and kept in the data directory."""
    secret: str = Field(default="", repr=False)
    """Shared by leader and followers; with etcd or PostgreSQL the members agree on one."""
    confirm_policy: Literal["local", "in-sync"] = "local"
    """When durable classic queues confirm: on this disk, or on those of all in-sync members."""
    min_in_sync: int = Field(default=1, ge=1)
    """In-sync members, with the leader, without which in-sync queues refuse publishes."""
    lease: Seconds = Field(default=5.0, ge=0.5)
    """How long a leader leads without renewing its lease."""
    start_timeout: Seconds = Field(default=60.0)
    """How long a member that starts waits for etcd or PostgreSQL."""
    follower_timeout: Seconds = Field(default=3.0, gt=0)
    """A follower that does not acknowledge for so long leaves the in-sync set."""
    max_lag: Bytes = Field(default=64 * MiB, ge=MiB)
    """Changes that may wait for one follower; beyond it the follower starts again."""
    mqtt_redirection: Literal["none", "use-another-server", "server-moved"] = "none"
    """With which reason code followers send MQTT 5 clients to the leader; none to forward them."""

    @property
    def enabled(self) -> bool:
        return bool(self.url or self.follow or self.listen)


@settings_model
class BrokerSettings:
    """One broker: listeners, limits and memory."""

    listen: AddressList = Field(default_factory=lambda: list(LISTEN))
    """Addresses to listen on, scheme://host:port; port 0 lets the system choose."""
    server_name: str = Field(default="penstock", min_length=1, max_length=255)
    """The broker's name for clients and in the management API."""
    rabbitmq_version: str = ""
    """The version of RabbitMQ to present to AMQP clients that accept no other broker."""
    default_vhost: str = Field(default="/", min_length=1, max_length=255)
    """The virtual host that the first start creates."""
    anonymous: bool = False
    """Whether AMQP and PADRES clients may omit the user name (SASL ANONYMOUS)."""
    anonymous_user: str = Field(default="anonymous", min_length=1, max_length=255)
    """The user whose permissions apply to clients without a user name."""
    allowed_hosts: TextList = Field(default_factory=list)
    """Host names of HTTP and WebSocket besides addresses and localhost; * for any."""
    allowed_origins: TextList = Field(default_factory=list)
    """Origins that may use HTTP and WebSocket, https://host[:port] each; * for any."""
    auth_backends: AuthBackends = Field(default_factory=lambda: ["internal"])
    """Who checks logins, in order: internal (penstock user), oauth2, ldap."""
    proxy_protocol_from: NetworkList = Field(default_factory=list)
    """Addresses or networks of proxies that may tell clients' addresses by the PROXY protocol."""
    tls: TlsSettings = TlsSettings()
    """Certificates for amqps, https, mqtts, padress and wss listeners."""
    oauth2: OAuth2Settings = OAuth2Settings()
    """Tokens of an OAuth 2 or OpenID Connect issuer as credentials."""
    ldap: LdapSettings = LdapSettings()
    """Users of an LDAP directory."""
    mqtt: MqttSettings = MqttSettings()
    """Settings of MQTT."""
    padres: PadresSettings = PadresSettings()
    """Settings of PADRES clients."""
    overlay: OverlaySettings = OverlaySettings()
    """Content-based routing between brokers."""
    cluster: ClusterSettings = ClusterSettings()
    """Replication to other machines, and failover."""

    frame_max: Bytes = Field(default=128 * KiB, ge=4096, le=GiB)
    """The largest AMQP frame, offered to clients in negotiation."""
    channel_max: int = Field(default=2047, ge=1, le=65535)
    """The most channels on one connection, offered to clients in negotiation."""
    heartbeat: WholeSeconds = Field(default=60, ge=0, le=65535)
    """Heartbeat interval in seconds, offered to clients in negotiation; 0 for none."""
    handshake_timeout: Seconds = Field(default=10.0, gt=0)
    """The longest time from connect to successful login."""
    max_connections: int = Field(default=0, ge=0)
    """The most connections; 0 for the limit of the system."""
    max_unauthenticated: int = Field(default=1000, ge=1)
    """The most connections without login; beyond it the oldest is closed."""
    max_message_bytes: Bytes = Field(default=16 * GiB, ge=0)
    """The largest message; 0 for no limit."""

    memory_budget: ShareOrBytes = 0.25
    """Memory for messages before the broker stops reading: a share of memory, or bytes."""
    queue_memory_bytes: Bytes = Field(default=16 * MiB, ge=64 * KiB)
    """Memory of one queue before it pages to disk."""
    spool_threshold: Bytes = Field(default=256 * KiB, ge=4 * KiB)
    """Larger messages are spooled to a file each."""
    segment_bytes: Bytes = Field(default=64 * MiB, ge=64 * KiB)
    """The size of a log segment."""
    tiered_storage: str = ""
    """Where streams with a local limit keep sealed segments: a directory or s3://bucket/prefix."""
    disk_free_limit: Bytes = Field(default=50 * MiB, ge=0)
    """Publishers are blocked while the data directory has less free space."""
    drain_seconds: Seconds = Field(default=2.0, ge=0)
    """How long a stopping broker waits for clients to settle deliveries."""

    @property
    def memory_bytes(self) -> int:
        budget = self.memory_budget
        return int(budget * memory_total()) if budget <= 1 else int(budget)

    def check(self) -> None:
        over_tls = [url for url in self.listen if parse_address(url).tls]
        if over_tls and self.tls.certificate is None:
            raise ValueError(f"{over_tls[0]} needs tls.certificate and tls.key")
        if not self.auth_backends or len(set(self.auth_backends)) != len(self.auth_backends):
            raise ValueError("auth_backends should name one or several backends, each once")
        if "ldap" in self.auth_backends and not self.ldap.urls:
            raise ValueError("auth_backends: ldap needs ldap.urls")
        if "oauth2" in self.auth_backends:
            oauth2 = self.oauth2
            if not oauth2.resource_server_id or not (oauth2.issuer or oauth2.jwks_url):
                raise ValueError(
                    "auth_backends: oauth2 needs oauth2.resource_server_id, and oauth2.issuer or "
                    "oauth2.jwks_url"
                )


@settings_model
class UpSettings:
    """Addresses of the applications that `penstock up` runs. Its other parts use the broker's."""

    site: str = Field(default="127.0.0.1:8000", pattern=r"[^\s/]+:[0-9]{1,5}")
    """The public page and the API. If the default port is in use, another one is taken."""
    dashboards: str = Field(default="127.0.0.1:8080", pattern=r"[^\s/]+:[0-9]{1,5}")
    """The dashboards. If the default port is in use, another one is taken."""


@settings_model
class Settings:
    """All settings. The constructor reads nothing from outside; `load_settings` does."""

    data: UserPath = Field(default_factory=data_home)
    """The data directory: logs, users, definitions."""
    log: LogSettings = LogSettings()
    """Log output of the process."""
    broker: BrokerSettings = BrokerSettings()
    """One broker: listeners, limits and memory."""
    up: UpSettings = UpSettings()
    """`penstock up`."""


class SettingInfo:
    """One setting, for documentation and messages."""

    __slots__ = ("_model", "default", "key", "printed")

    def __init__(self, key: str, default: Any, model: type[Any], unit: Unit | None) -> None:
        self.key = key
        self.default = default
        self.printed = unit.format if unit else _plain
        self._model = model

    @property
    def description(self) -> str:
        return field_descriptions(self._model).get(self.key.rpartition(".")[2], "")

    @property
    def variable(self) -> str:
        return environment_variable(self.key)

    def shown(self, value: Any) -> Any:
        return redact_value(self.key, value)


def environment_variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "__")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


def list_settings(model: type[Any] = Settings, prefix: str = "") -> dict[str, SettingInfo]:
    """Every setting by dotted key, in the order of the classes."""
    found: dict[str, SettingInfo] = {}
    types = field_types(model)
    for field in dataclasses.fields(model):
        key, kind = prefix + field.name, types[field.name]
        if dataclasses.is_dataclass(kind):
            found |= list_settings(kind, key + ".")  # type: ignore[arg-type]
            continue
        unit = next((mark for mark in get_args(kind) if isinstance(mark, Unit)), None)
        found[key] = SettingInfo(key, field_default(field), model, unit)
    return found


def setting_value(settings: Settings, key: str) -> Any:
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value
