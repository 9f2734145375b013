"""The configuration: every setting, its type, its default and a sentence about it.

Values come from flags, the environment (`PENSTOCK_BROKER__HEARTBEAT=30`), `penstock.toml` and the
defaults here, in this order; `config_sources.py` reads them and remembers which came from where.
In Python the models are built directly: `BrokerSettings(listen=["amqp://127.0.0.1:0"])` reads
nothing from outside. A value that is not allowed never gets past this file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from penstock.core.addresses import parse_address
from penstock.core.redaction import redact_value
from penstock.core.resources import memory_total
from penstock.core.units import Bytes, GiB, KiB, MiB, Seconds, Unit, WholeSeconds, parse_bytes

#: Environment variables of ours begin with it.
ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
_SHARE: Final = "should be a share of memory from 0 to 1 (0.25, 25%), or bytes (2GiB)"


def data_home() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "penstock"


def _texts(value: object) -> object:
    """A list in the environment or a flag: commas between, or JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
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


def _expand(path: Path) -> Path:
    return path.expanduser()


TextList = Annotated[list[str], NoDecode, BeforeValidator(_texts)]
AddressList = Annotated[list[str], NoDecode, BeforeValidator(_texts), AfterValidator(_addresses)]
ShareOrBytes = Annotated[float | int, BeforeValidator(_share_or_bytes), AfterValidator(_share)]
UserPath = Annotated[Path, AfterValidator(_expand)]

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LogSettings(BaseModel):
    """What the process says about itself."""

    model_config = _STRICT

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe events that are written."""
    format: Literal["auto", "console", "json"] = "auto"
    """How they are written; auto is console in a terminal, JSON lines otherwise."""


class TlsSettings(BaseModel):
    """Certificates of the listeners that speak TLS (PEM files)."""

    model_config = _STRICT

    certificate: UserPath | None = None
    """The server's certificate, followed by its intermediates."""
    key: UserPath | None = None
    """The certificate's private key."""
    authority: UserPath | None = None
    """The authorities that clients' certificates are checked against."""
    verify_peer: bool = False
    """Whether a client must show a certificate that an authority signed."""

    @model_validator(mode="after")
    def _complete(self) -> TlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key are set together or not at all")
        if self.verify_peer and self.authority is None:
            raise ValueError("verify_peer needs an authority to check certificates against")
        return self


class MqttSettings(BaseModel):
    """How MQTT clients are served."""

    model_config = _STRICT

    exchange: str = Field(default="amq.topic", min_length=1, max_length=255)
    """The topic exchange that MQTT topics lead to and come from."""
    anonymous: bool = True
    """Whether clients of this machine may leave the user name out, for anonymous_user's rights."""
    anonymous_websocket: bool = False
    """Whether they may do so over WebSocket as well, where any program in a browser can."""
    max_packet_bytes: Bytes = Field(default=268_435_460, ge=KiB, le=268_435_460)
    """The largest packet a client may send."""
    max_inflight: int = Field(default=2048, ge=1, le=65535)
    """The most messages on their way to one client and not answered, unless it wants fewer."""
    receive_maximum: int = Field(default=2048, ge=1, le=65535)
    """The most messages of QoS 1 and 2 one client may have on their way to the broker."""
    topic_alias_maximum: int = Field(default=64, ge=0, le=65535)
    """How many topics a client may give a short name."""
    max_queued: int = Field(default=100_000, ge=0)
    """Messages that may wait for one client, the oldest dropped first; 0 for any number."""
    max_session_expiry: WholeSeconds = Field(default=30 * 86_400, ge=0, le=0xFFFFFFFF)
    """How long a session may outlive its connection; 3.1.1 clients get this much."""
    keep_alive: WholeSeconds = Field(default=0, ge=0, le=65535)
    """The longest silence a client may ask for; 0 leaves it to the client."""
    sys_interval: Seconds = Field(default=10.0, ge=0)
    """Seconds between figures of the broker under $SYS; 0 for none."""


class PadresSettings(BaseModel):
    """How clients that speak PADRES are served."""

    model_config = _STRICT

    exchange: str = Field(default="content", min_length=1, max_length=255)
    """The x-content exchange that shares publications with PADRES clients; made when needed."""
    stream: str = Field(default="publications", max_length=255)
    """The stream that keeps what is published there; empty for none."""
    stream_bytes: Bytes = Field(default=GiB, ge=0)
    """How much that stream keeps before the oldest goes; 0 for everything."""
    conformance: bool = True
    """Whether what a client publishes has to conform to what it has advertised."""
    max_frame_bytes: Bytes = Field(default=MiB, ge=4 * KiB, le=64 * MiB)
    """The largest frame a client or another broker may send."""
    max_queued: int = Field(default=100_000, ge=0)
    """Publications that may wait for one client, the oldest dropped first; 0 for any number."""


class OverlaySettings(BaseModel):
    """How the broker routes together with others by content."""

    model_config = _STRICT

    id: str = Field(default="Broker1", pattern=r"^[A-Za-z0-9.:/]+$", max_length=64)
    """The broker's name among brokers, different from all others'; letters, digits, . : and /."""
    uri: str = ""
    """Where neighbours reach it, padres://host:port/ID; by default the first padres listener."""
    neighbours: TextList = []
    """Brokers to connect to, padres://host:port/ID each."""
    accept_links_from: TextList = []
    """Ids of the brokers that may connect to this one, besides those it connects to itself."""
    accept_commands_from: TextList = []
    """Ids of the neighbours whose BROKER_CONTROL, BROKER_MONITOR and GLOBAL_FD count here."""
    user: str = ""
    """User it connects to neighbours as, if their address has none; tagged overlay there."""
    password: str = Field(default="", repr=False)
    """The password of that user."""
    retry_limit: int = Field(default=30, ge=0)
    """How often in a row a neighbour is tried in vain before it is given up; 0 for no limit."""
    retry_pause: Seconds = Field(default=10.0, gt=0)
    """Seconds between two tries."""
    cycles: Literal["OFF", "FIXED", "DYNAMIC"] = "OFF"
    """Whether links may form cycles: no; and publications keep to their tree; or may leave it."""
    subscription_covering: Literal["OFF", "LAZY", "ACTIVE"] = "OFF"
    """Whether neighbours are spared subscriptions that others cover, and those withdrawn."""
    advertisement_covering: Literal["OFF", "LAZY"] = "OFF"
    """Whether neighbours are spared advertisements that others cover; without cycles only."""
    split_composites: bool = False
    """Whether composite subscriptions are joined where the ways to their parts divide."""
    ordered_by: str = ""
    """The id of the broker that puts all publications in one order; empty for each on its way."""
    max_asked: int = Field(default=100_000, ge=0)
    """The most one client may ask for, unless conformance is off; 0 for any number."""
    heartbeat: bool = False
    """Whether neighbours are asked for signs of life."""
    heartbeat_interval: Seconds = Field(default=3.0, gt=0)
    """Seconds between two such questions."""
    heartbeat_timeout: Seconds = Field(default=5.0, gt=0)
    """How long an answer may take."""
    heartbeat_threshold: int = Field(default=3, ge=1)
    """After how many answers that did not come a neighbour has failed."""
    info_interval: Seconds = Field(default=0.0, ge=0)
    """Seconds between two publications about the broker (BROKER_INFO); 0 for none unasked."""
    info_full: bool = True
    """Whether they list advertisements and subscriptions, or count them."""
    trace_all: bool = False
    """Whether the way of every message is told (TRACEROUTE_MESSAGE)."""


class BrokerSettings(BaseModel):
    """One broker: where it listens, what it allows, how much it holds."""

    model_config = _STRICT

    listen: AddressList = [
        "amqp://127.0.0.1:5672",
        "mqtt://127.0.0.1:1883",
        "ws://127.0.0.1:15675",
        "padres://127.0.0.1:5680",
        "http://127.0.0.1:15672",
    ]
    """Addresses to listen on, scheme://host:port; port 0 lets the system choose."""
    server_name: str = Field(default="penstock", min_length=1, max_length=255)
    """The name the broker gives itself to clients and in the management API."""
    default_vhost: str = Field(default="/", min_length=1, max_length=255)
    """The virtual host that exists from the first start."""
    anonymous: bool = False
    """Whether AMQP and PADRES clients may leave the user name out (SASL ANONYMOUS)."""
    anonymous_user: str = Field(default="anonymous", min_length=1, max_length=255)
    """The user whose permissions clients without a user name have."""
    allowed_hosts: TextList = []
    """Names that HTTP and WebSocket are reached by beside addresses and localhost; * for any."""
    allowed_origins: TextList = []
    """Sites whose pages may use HTTP and WebSocket, https://host[:port] each; * for any."""
    tls: TlsSettings = TlsSettings()
    """Certificates for amqps, https, mqtts, padress and wss listeners."""
    mqtt: MqttSettings = MqttSettings()
    """How MQTT clients are served."""
    padres: PadresSettings = PadresSettings()
    """How clients that speak PADRES are served."""
    overlay: OverlaySettings = OverlaySettings()
    """How the broker routes together with others by content."""

    frame_max: Bytes = Field(default=128 * KiB, ge=4096, le=GiB)
    """The largest AMQP frame, offered to clients in negotiation."""
    channel_max: int = Field(default=2047, ge=1, le=65535)
    """The most channels on one connection, offered to clients in negotiation."""
    heartbeat: WholeSeconds = Field(default=60, ge=0, le=65535)
    """Seconds between signs of life, offered to clients in negotiation; 0 for none."""
    handshake_timeout: Seconds = Field(default=10.0, gt=0)
    """How long a client may take from connecting to being let in."""
    max_connections: int = Field(default=0, ge=0)
    """The most connections at a time; 0 for as many as the system allows."""
    max_unauthenticated: int = Field(default=1000, ge=1)
    """The most connections that have not logged in; one more, and the oldest is closed."""
    max_message_bytes: Bytes = Field(default=16 * GiB, ge=0)
    """The largest message; 0 for any size."""

    memory_budget: ShareOrBytes = 0.25
    """What messages in memory may take before reading stops: a share of memory, or bytes."""
    queue_memory_bytes: Bytes = Field(default=16 * MiB, ge=64 * KiB)
    """What one queue keeps in memory before it pages to disk."""
    spool_threshold: Bytes = Field(default=256 * KiB, ge=4 * KiB)
    """Messages larger than this are spooled to a file of their own."""
    segment_bytes: Bytes = Field(default=64 * MiB, ge=64 * KiB)
    """How large a segment of a log grows before the next begins."""
    disk_free_limit: Bytes = Field(default=50 * MiB, ge=0)
    """Publishers are blocked while the data directory's disk has less than this."""
    drain_seconds: Seconds = Field(default=2.0, ge=0)
    """How long a stopping broker waits for clients to finish what they hold."""

    @property
    def memory_bytes(self) -> int:
        """The memory budget of this machine, in bytes."""
        budget = self.memory_budget
        return int(budget * memory_total()) if budget <= 1 else int(budget)

    @model_validator(mode="after")
    def _certified(self) -> BrokerSettings:
        over_tls = [url for url in self.listen if parse_address(url).tls]
        if over_tls and self.tls.certificate is None:
            raise ValueError(f"{over_tls[0]} needs tls.certificate and tls.key")
        return self


class Settings(BaseSettings):
    """All of it. Built in Python it is what it is told; `sources.load` reads the world."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        validate_default=False,
    )

    data: UserPath = Field(default_factory=data_home)
    """The directory that holds everything kept: logs, users, definitions."""
    log: LogSettings = LogSettings()
    """What the process says about itself."""
    broker: BrokerSettings = BrokerSettings()
    """One broker: where it listens, what it allows, how much it holds."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class SettingInfo:
    """One key of the configuration, as documentation and messages show it."""

    __slots__ = ("default", "description", "key", "printed")

    def shown(self, value: Any) -> Any:
        """The value without secrets."""
        return redact_value(self.key, value)

    def __init__(self, key: str, default: Any, description: str, unit: Unit | None) -> None:
        self.key = key
        self.default = default
        self.description = description
        self.printed = unit.format if unit else _plain

    @property
    def variable(self) -> str:
        return environment_variable(self.key)


def environment_variable(key: str) -> str:
    """The environment variable of a key."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "__")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


def list_settings(model: type[BaseModel] = Settings, prefix: str = "") -> dict[str, SettingInfo]:
    """Every key there is, in the order of the models."""
    found: dict[str, SettingInfo] = {}
    for name, field in model.model_fields.items():
        key = prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= list_settings(field.annotation, key + ".")
            continue
        unit = next((mark for mark in field.metadata if isinstance(mark, Unit)), None)
        default = field.get_default(call_default_factory=True)
        found[key] = SettingInfo(key, default, field.description or "", unit)
    return found


def setting_value(settings: Settings, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value
