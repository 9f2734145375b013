"""The settings of a component: one flat model, with Sarracenia's names, units and defaults.

All components share the model and ignore settings they do not use. `DEFAULTS` has the defaults that
differ between components. Passwords belong in the credentials file, but may be in a URL.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from penstock.core.errors import ConfigurationError
from penstock.core.units import Bytes, Seconds
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
    """`create` means `modify`: a post does not distinguish them."""
    if not isinstance(value, str | list | tuple):
        return value
    words = re.split(r"[,|\s]+", value) if isinstance(value, str) else list(value)
    aliases = {"create": ["modify"], "rename": ["modify", "delete"]}
    return frozenset(each for word in words if word for each in aliases.get(str(word), [word]))


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


class BindingSettings(_Model):
    """A binding of the queue, where one exchange is not enough."""

    exchange: str
    subtopic: str = "#"
    topic_prefix: str | None = None


class PumpSettings(_Model):
    component: Component
    name: str = Field("default", description="Names the queue and the state directory.")

    # Brokers.
    broker: str = Field("amqp://guest@127.0.0.1/", description="The broker to consume from.")
    exchange: str | None = None
    exchange_suffix: str | None = None
    topic_prefix: Many = Field(["v02.post"], description="v02.post, v03, or both.")
    subtopic: Many = Field(["#"], description="Directories, as AMQP topic patterns.")
    bindings: Annotated[list[BindingSettings], BeforeValidator(_structured)] = []
    queue: str | None = Field(None, description="Default: a name chosen at the first start.")
    prefetch: int = Field(1024, ge=1)
    post_broker: str | None = Field(None, description="The broker to publish to. Default: broker.")
    post_exchange: str | None = None
    post_exchange_suffix: str | None = None
    post_exchange_split: int = Field(0, ge=0, le=99)
    post_topic_prefix: str | None = None
    post_subtopic: str | None = None
    post_format: Literal["v02", "v03", "wis2", "wis"] | None = None
    message_ttl: Seconds | None = Field(None, description="Time to live of published posts.")
    persistent: bool = Field(True, description="Publish persistent messages.")
    expire: Seconds | None = Field(
        None, description="Delete the queue after this time without consumers. Default: never."
    )
    credentials: Path | None = None
    known_hosts: Path | None = Field(None, description="For SFTP. Default: the user's file.")

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

    # Download.
    inflight: str = ".tmp"
    min_age: Seconds = 0.0
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
    recursive: bool = True
    folders: bool = Field(False, description="Announce directories, too.")
    existing: bool = Field(False, description="watch: announce existing files at the first start.")
    rescan: Seconds = Field(300.0, description="watch: time between scans of the whole tree.")

    suppress_duplicates: Seconds | None = None
    suppress_basis: Literal["path", "name", "data"] = "path"

    # Provenance, reports, process.
    source: str | None = None
    source_from_exchange: bool = False
    cluster: str | None = None
    to_clusters: str | None = None
    report_back: bool = False
    report_exchange: str | None = None
    destination: str | None = Field(None, description="sender: the URL to push to.")
    plugins: Many = Field([], description="The site's own functions, as module:name.")
    state: Path | None = Field(None, description="Directory of queue name, retries and status.")
    instance: int = Field(1, ge=1)
    instances: int = Field(1, ge=1, description="Processes that `penstock pump start` starts.")
    file: Path | None = Field(None, description="save, restore: the file.")
    idle: Seconds = Field(2.0, description="save: stop after this time without a message.")


#: Former names of settings.
ALIASES: Final[Mapping[str, str]] = {
    "hold": "part_quota",
    "hold_exchange": "part_quota_exchange",
    "hold_readers": "part_quota_readers",
}
#: Defaults of components that differ from the model's.
DEFAULTS: Final[Mapping[Component, Mapping[str, Any]]] = {
    Component.SUBSCRIBE: {"report_back": True},
    Component.SARRA: {"mirror": True, "accept_unmatched": True, "inflight": "."},
    Component.WINNOW: {"suppress_duplicates": 1200.0, "accept_unmatched": True},
    Component.SHOVEL: {"accept_unmatched": True},
    Component.SENDER: {"accept_unmatched": True, "mirror": True, "directory": ""},
    Component.REPORT: {"topic_prefix": ["v02.report"], "accept_unmatched": True},
    Component.POST: {"accept_unmatched": True},
    Component.WATCH: {"accept_unmatched": True},
}


def settings_of(given: Mapping[str, Any], where: str = "") -> PumpSettings:
    """The validated settings; an error names all problems."""
    given = {ALIASES.get(name, name): value for name, value in given.items()}
    try:
        component = Component(given.get("component", ""))
    except ValueError:
        known = ", ".join(Component)
        raise ConfigurationError(f"{where}component should be one of {known}") from None
    try:
        return PumpSettings.model_validate({**DEFAULTS.get(component, {}), **given})
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
