"""The settings of a component: one flat model, with Sarracenia's names, units and defaults.

All components share the model and ignore settings they do not use. `defaults_of` has the defaults
that differ between components and between v2 and sr3. Passwords belong in the credentials file, but
may be in a URL.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from penstock.core.errors import ConfigurationError
from penstock.core.units import Bytes, Seconds
from penstock_pump.config.dialect import Dialect
from penstock_pump.posts.post import FileEvent


class Component(StrEnum):
    POST = "post"  #: announces files once
    WATCH = "watch"  #: announces files as they change
    SUBSCRIBE = "subscribe"  #: downloads announced files
    SARRA = "sarra"  #: downloads them and announces its copies
    WINNOW = "winnow"  #: forwards the first of equal posts
    SHOVEL = "shovel"  #: forwards posts from broker to broker
    SENDER = "sender"  #: pushes local files to a server
    REPORT = "report"  #: prints reports
    POLL = "poll"  #: lists a server and announces its files
    FLOW = "flow"  #: what its plugins make of it; otherwise as subscribe
    SAVE = "save"  #: writes a queue to a file
    RESTORE = "restore"  #: publishes a saved file


def _octal(value: object) -> object:
    if not isinstance(value, str):
        return value
    return int(value, 8) or None


def _pattern(value: object) -> object:
    try:
        return re.compile(value) if isinstance(value, str) else value
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from None


def _strip(value: object) -> object:
    if isinstance(value, str):
        return int(value) if value.isdecimal() else _pattern(value)
    return value


def _events(value: object) -> object:
    """`create` means `modify`: a post does not distinguish them. `+` and `-` add to all events, or
    remove from them."""
    if not isinstance(value, str | list | tuple):
        return value
    words = re.split(r"[,|\s]+", value) if isinstance(value, str) else list(value)
    every = [each.value for each in FileEvent]
    aliases = {"create": ["modify"], "rename": ["modify", "delete"], "all": every}
    changes = [str(word) for word in words if str(word).startswith(("+", "-"))]
    plain = [str(word) for word in words if word and word not in changes]
    found = {each for word in plain for each in aliases.get(word, [word])}
    if changes and not plain:
        found = set(every)
    for word in changes:
        names = aliases.get(word[1:], [word[1:]])
        found = found | {*names} if word.startswith("+") else found - {*names}
    return frozenset(found)


def _structured(value: object) -> object:
    """Lists and tables are written in TOML where only text can be given, as with `--set`."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        form = "['a', 'b'] or {a = 'b'}"
        raise ValueError(f"{value!r} should be as in TOML, {form}: {error}") from None


def _many(value: object) -> object:
    value = _structured(value)
    return [value] if isinstance(value, str | Path) else value


Mode = Annotated[int | None, BeforeValidator(_octal)]
Pattern = Annotated[re.Pattern[str], BeforeValidator(_pattern)]
Strip = Annotated[int | re.Pattern[str], BeforeValidator(_strip)]
Events = Annotated[frozenset[FileEvent], BeforeValidator(_events)]
Many = Annotated[list[str], BeforeValidator(_many)]
Paths = Annotated[list[Path], BeforeValidator(_many)]


_FORMS: Final = {"wis": "wis2"}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class SelectionSettings(_Model):
    """An `accept` with its placement, or a `reject`. The component's settings are the defaults."""

    accept: Pattern | None = None
    reject: Pattern | None = None
    directory: str | None = None
    mirror: bool | None = None
    strip: Strip | None = None
    flatten: str | None = None
    filename: str | None = None
    arguments: list[str] = Field([], description="Words after an accept, for plugins.")


class BindingSettings(_Model):
    """A binding of a queue, where one exchange, or one broker, is not enough."""

    broker: str | None = None
    queue: str | None = None
    exchange: str | None = None
    subtopic: str = "#"
    topic_prefix: str | None = None


class PostCopySettings(_Model):
    """A further broker that posts go to. What is not set is as for the first."""

    broker: str
    exchange: str | None = None
    exchange_suffix: str | None = None
    exchange_split: int = Field(0, ge=0, le=99)
    topic_prefix: str | None = None
    format: str | None = None
    base_url: str | None = None


class OptionNote(NamedTuple):
    where: str  #: the file and the line
    option: str
    reason: str


class PumpSettings(_Model):
    component: Component
    dialect: Dialect = Field(Dialect.V2, description="Whose defaults: v2's or sr3's.")
    name: str = Field("default", description="Names the queue and the state directory.")

    # Brokers.
    broker: str = Field("amqp://guest@127.0.0.1/", description="The broker to consume from.")
    exchange: str | None = None
    exchange_suffix: str | None = None
    exchange_split: int = Field(0, ge=0, le=99, description="Exchanges; one for each instance.")
    topic_prefix: Many = Field(["v02.post"], description="v02.post, v03, or both.")
    subtopic: Many = Field(["#"], description="Directories, as AMQP topic patterns.")
    bindings: Annotated[list[BindingSettings], BeforeValidator(_structured)] = []
    queue: str | None = Field(None, description="Default: a name chosen at the first start.")
    queue_arguments: Annotated[dict[str, Any], BeforeValidator(_structured)] = {}
    bind_queue: bool = Field(True, description="Bind the queue; else others do.")
    reset: bool = Field(False, description="Delete the queue at the start.")
    prefetch: int = Field(1024, ge=1)
    post_broker: str | None = Field(None, description="The broker to publish to. Default: broker.")
    post_exchange: str | None = None
    post_exchange_suffix: str | None = None
    post_exchange_split: int = Field(0, ge=0, le=99)
    post_topic_prefix: str | None = None
    post_subtopic: str | None = None
    post_topic: str | None = None
    post_format: Annotated[
        Literal["v02", "v03", "wis2"] | None, BeforeValidator(lambda text: _FORMS.get(text, text))
    ] = None
    post_copies: Annotated[list[PostCopySettings], BeforeValidator(_structured)] = Field(
        [], description="Further brokers that posts go to."
    )
    message_ttl: Seconds | None = Field(None, description="Time to live of published posts.")
    persistent: bool = Field(True, description="Publish persistent messages.")
    expire: Seconds | None = Field(
        None, description="Delete the queue after this time without consumers. Default: never."
    )
    credentials: Path | None = None
    known_hosts: Path | None = Field(None, description="For SFTP. Default: the user's file.")
    proxy: str | None = Field(None, description="http:, https: or socks5: URL; none: no proxy.")
    user_agent: str = "penstock-pump"

    # Dialects of v02.
    name_in_topic: bool = False
    newline: bool = False
    exact_names: bool = False
    join: bool = Field(False, description="Always join base URL and path.")

    # Selection and placement.
    select: Annotated[list[SelectionSettings], BeforeValidator(_structured)] = []
    accept_unmatched: bool = False
    events: Events = frozenset(FileEvent)
    directory: str = "."
    mirror: bool = False
    strip: Strip = 0
    flatten: str = "/"
    filename: str | None = None
    base_dir: Path | None = None
    variables: Annotated[dict[str, str], BeforeValidator(_structured)] = {}
    var_time_offset: float = Field(0.0, description="Seconds added to times in variables.")
    groups_from_zero: bool = Field(True, description="${0} is the first group of a pattern.")
    base_url_relpath: bool = Field(False, description="The path of the base URL counts, too.")
    inline_only: bool = Field(False, description="Reject posts without the content.")
    message_age_max: Seconds = Field(0.0, description="Reject older posts; 0: none.")
    file_size_max: Bytes = Field(0, description="Reject larger files; 0: none.")
    message_rate_max: float = Field(0.0, ge=0, description="Posts per second; 0: unlimited.")
    message_count_max: int = Field(0, ge=0, description="Stop after so many posts; 0: never.")

    # Download.
    inflight: str = ".tmp"
    min_age: Seconds = 0.0
    max_age: Seconds = Field(0.0, description="Skip files that are older; 0: none.")
    download: bool = Field(True, description="Off: forward posts without their files.")
    discard: bool = Field(False, description="Remove files once they are complete.")
    delete: bool = Field(False, description="Remove files from where they came, once transferred.")
    dry_run: bool = Field(False, description="Log what would be done, and do nothing.")
    retry: bool = Field(True, description="Retry failed posts later.")
    retry_count_max: int = Field(0, ge=0, description="Retries of a post; 0: until retry_ttl.")
    accept_size_wrong: bool = Field(False, description="Keep files of another size.")
    attempts: int = Field(3, ge=1)
    retry_ttl: Seconds = 2 * 86400.0
    timeout: Seconds = 300.0
    concurrency: int = Field(16, ge=1)
    bandwidth: Bytes = Field(0, description="Bytes per second of all transfers; 0: unlimited.")
    overwrite: bool = True
    inplace: bool = True
    part_quota: Bytes = Field(0, description="Without inplace: bytes of parts; 0: unlimited.")
    part_quota_exchange: str | None = Field(None, description="Exchange with reports on parts.")
    part_quota_readers: int = Field(1, ge=1, description="Delete a part after so many reports.")
    preserve_mode: bool = True
    preserve_time: bool = True
    default_mode: Mode = None
    default_dir_mode: Mode = 0o775
    durable: bool = Field(True, description="Sync files before they get their final name.")
    strict_sums: bool = Field(True, description="Refuse files with another checksum.")
    private_hosts: bool = Field(False, description="Posts may name hosts of private networks.")
    file_directories: Paths = Field(
        [], description="Directories whose files posts may name by file: URLs."
    )

    # Posting.
    path: Paths = []
    post_base_url: str | None = None
    post_base_dir: Path | None = None
    sum: str = "s"
    blocksize: Bytes = Field(1, description="0: automatic, 1: never, else bytes.")
    partition: Literal["i", "p"] = "i"
    inline: Bytes = Field(0, description="Put files up to this size into posts (v03, wis2).")
    inline_encoding: Literal["auto", "text", "binary"] = "auto"
    randomize: bool = Field(False, description="Announce the blocks of a file in random order.")
    rename: str | None = Field(None, description="Path that consumers use instead.")
    headers: Annotated[dict[str, str], BeforeValidator(_structured)] = {}
    follow_links: bool = Field(False, description="Announce what a link leads to, as a file.")
    real_path: bool = Field(False, description="Announce paths with their links resolved.")
    recursive: bool = True
    folders: bool = Field(False, description="Announce directories, too.")
    existing: bool = Field(False, description="watch: announce existing files at the first start.")
    rescan: Seconds = Field(300.0, description="watch: time between scans of the whole tree.")

    # Polling.
    poll_url: str | None = None
    sleep: Seconds = Field(300.0, description="poll: time between two listings.")
    scheduled_interval: Seconds = 0.0
    scheduled_hour: Many = []
    scheduled_minute: Many = []
    scheduled_time: Many = []
    timezone: str = Field("UTC", description="poll: of the times in listings.")

    suppress_duplicates: Seconds | None = None
    suppress_basis: Annotated[
        Literal["path", "name", "data", "path_only", "name_only"],
        BeforeValidator(lambda text: {"data_only": "data"}.get(text, text)),
    ] = "path"

    # Provenance, reports, process.
    source: str | None = None
    source_from_exchange: bool = False
    source_from_message: bool = Field(True, description="Posts keep the source that they have.")
    cluster: str | None = None
    cluster_aliases: Many = Field([], description="Other names of this cluster.")
    gateway_for: Many = Field([], description="Clusters that are reached through this one.")
    to_clusters: str | None = None
    report_back: bool = False
    report_exchange: str | None = None
    report_broker: str | None = Field(None, description="Default: broker.")
    destination: str | None = Field(None, description="sender: the URL to push to.")
    plugins: Many = Field([], description="The site's own functions, as module:name.")
    flow_main: str | None = Field(None, description="flow: the component it works as.")
    exchanges: Many = Field([], description="Exchanges that the action `declare` also declares.")
    plugin_path: Paths = Field([], description="Directories of plugins written for Sarracenia.")
    plugin_options: Annotated[dict[str, Any], BeforeValidator(_structured)] = {}
    housekeeping: Seconds = Field(300.0, description="Between calls of on_housekeeping.")
    vip: Many = Field([], description="Work only while this machine has one of the addresses.")
    hostname: str | None = Field(None, description="In reports. Default: this machine's name.")
    log_level: str | None = None
    log_reject: bool = Field(False, description="Log rejected posts.")
    state: Path | None = Field(None, description="Directory of queue name, retries and status.")
    state_host: bool = Field(False, description="A state directory for each machine.")
    instance: int = Field(1, ge=1)
    instances: int = Field(1, ge=1, description="Processes that `penstock pump start` starts.")
    file: Path | None = Field(None, description="save, restore: the file.")
    idle: Seconds = Field(2.0, description="save: stop after this time without a message.")
    _dialect_reason: str = PrivateAttr("setting")
    _notes: tuple[OptionNote, ...] = PrivateAttr(())
    _unused: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def dialect_reason(self) -> str:
        """What the dialect was decided by."""
        return self._dialect_reason

    @property
    def notes(self) -> tuple[OptionNote, ...]:
        """The options of the file that have no effect, and why."""
        return self._notes

    def with_unused(self) -> PumpSettings:
        """As plugins read them: with the options of the file that the component does not use."""
        return self.model_copy(update=self._unused) if self._unused else self

    def remember_file(
        self, dialect_reason: str, notes: Iterable[OptionNote], unused: Mapping[str, Any]
    ) -> None:
        self._dialect_reason = dialect_reason
        self._notes = tuple(notes)
        self._unused = unused


#: Former names of settings.
ALIASES: Final[Mapping[str, str]] = {
    "hold": "part_quota",
    "hold_exchange": "part_quota_exchange",
    "hold_readers": "part_quota_readers",
}
_POLL: Final[Mapping[str, Any]] = {
    "accept_unmatched": True,
    "suppress_duplicates": 7 * 3600.0,
    "max_age": 30 * 86400.0,
    "folders": False,
}
#: Defaults of components that differ from the model's, for v2 and our own settings.
_V2: Final[Mapping[Component, Mapping[str, Any]]] = {
    Component.SUBSCRIBE: {"report_back": True},
    Component.SARRA: {"mirror": True, "accept_unmatched": True, "inflight": "."},
    Component.WINNOW: {"suppress_duplicates": 1200.0, "accept_unmatched": True},
    Component.SHOVEL: {"accept_unmatched": True},
    Component.SENDER: {"accept_unmatched": True, "mirror": True, "directory": ""},
    Component.REPORT: {"topic_prefix": ["v02.report"], "accept_unmatched": True},
    Component.POST: {"accept_unmatched": True},
    Component.WATCH: {"accept_unmatched": True},
    Component.POLL: {"sum": "z,s", **_POLL},
}
#: sr3's defaults of all components.
_SR3: Final[Mapping[str, Any]] = {
    "topic_prefix": ["v03"],
    "post_format": "v03",
    "accept_unmatched": True,
    "mirror": True,
    "groups_from_zero": False,
    "folders": True,
    "source_from_message": False,
}
_SR3_COMPONENTS: Final[Mapping[Component, Mapping[str, Any]]] = {
    Component.SUBSCRIBE: {"mirror": False},
    Component.FLOW: {"download": False},
    Component.SARRA: {"inflight": "."},
    Component.WINNOW: {"suppress_duplicates": 300.0},
    Component.SENDER: {"directory": ""},
    Component.REPORT: {"topic_prefix": ["v02.report", "v03"]},
    Component.POLL: {"sum": "z,s", **_POLL},
}


def defaults_of(dialect: Dialect, component: Component) -> dict[str, Any]:
    """The defaults that differ from the model's."""
    if dialect is Dialect.V2:
        return dict(_V2.get(component, {}))
    return {**_SR3, **_SR3_COMPONENTS.get(component, {}), "dialect": dialect}


def settings_of(given: Mapping[str, Any], where: str = "") -> PumpSettings:
    """The validated settings; an error names all problems."""
    given = {ALIASES.get(name, name): value for name, value in given.items()}
    try:
        component = Component(given.get("component", ""))
    except ValueError:
        known = ", ".join(Component)
        raise ConfigurationError(f"{where}component should be one of {known}") from None
    try:
        dialect = Dialect(given.get("dialect", Dialect.V2))
    except ValueError:
        raise ConfigurationError(f"{where}dialect should be v2 or sr3") from None
    try:
        return PumpSettings.model_validate({**defaults_of(dialect, component), **given})
    except ValidationError as error:
        lines = [
            f"{where}{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        ]
        raise ConfigurationError("\n".join(lines)) from None


def read_toml(path: Path, flags: Mapping[str, Any] | None = None) -> PumpSettings:
    """Flags override the file. The default of `name` is the name of the file."""
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return settings_of({"name": path.stem, **given, **(flags or {})}, f"{path}: ")
