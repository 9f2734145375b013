"""The settings of a component: one flat model, with Sarracenia's names, units and defaults.

Every component has the same settings; what it has no use for it leaves. Where components differ in
what they assume, `DEFAULTS` says so, and what is given always counts. Passwords belong in the file
of credentials, but may be in a URL.
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
    """What a configuration is of."""

    POST = "post"  #: announce files once
    WATCH = "watch"  #: announce what changes in a directory, for good
    SUBSCRIBE = "subscribe"  #: fetch what is announced
    SARRA = "sarra"  #: fetch it and announce our own copy
    WINNOW = "winnow"  #: let the first of equal announcements through
    SHOVEL = "shovel"  #: carry announcements from broker to broker
    SENDER = "sender"  #: push files that we have to a server
    REPORT = "report"  #: read what became of files
    SAVE = "save"  #: put a queue into a file
    RESTORE = "restore"  #: publish what was saved


def _octal(value: object) -> object:
    if not isinstance(value, str):
        return value
    return int(value, 8) or None


def _pattern(value: object) -> object:
    try:
        return re.compile(value) if isinstance(value, str) else value
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from None


def _strip(value: object) -> object:
    if isinstance(value, str):
        return int(value) if value.isdecimal() else _pattern(value)
    return value


def _events(value: object) -> object:
    """`create` is what `modify` is: a post does not tell them apart."""
    if not isinstance(value, str | list | tuple):
        return value
    words = re.split(r"[,|\s]+", value) if isinstance(value, str) else list(value)
    aliases = {"create": ["modify"], "rename": ["modify", "delete"]}
    return frozenset(each for word in words if word for each in aliases.get(str(word), [word]))


def _structured(value: object) -> object:
    """A list or a table may be written as TOML has it, where only text can be given."""
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
    """One line of the selection: `accept` or `reject`, and where what is accepted goes. What is
    not said here is as the component's own settings say."""

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
    name: str = Field("default", description="Names the queue and what is kept on disk.")

    # Brokers.
    broker: str = Field("amqp://guest@127.0.0.1/", description="Where posts are heard.")
    exchange: str | None = None
    exchange_suffix: str | None = None
    topic_prefix: Many = Field(["v02.post"], description="v02.post, v03, or both.")
    subtopic: Many = Field(["#"], description="Which directories, as AMQP has patterns.")
    bindings: Annotated[list[BindingSettings], BeforeValidator(_structured)] = []
    queue: str | None = Field(None, description="Else one is made up and kept.")
    prefetch: int = Field(1024, ge=1)
    post_broker: str | None = Field(None, description="Where posts are sent; else the broker.")
    post_exchange: str | None = None
    post_exchange_suffix: str | None = None
    post_exchange_split: int = Field(0, ge=0, le=99)
    post_topic_prefix: str | None = None
    post_subtopic: str | None = None
    post_format: Literal["v02", "v03", "wis2", "wis"] | None = None
    message_ttl: Seconds | None = Field(None, description="Brokers may forget posts this old.")
    persistent: bool = Field(True, description="Posts outlive a broker's restart.")
    expire: Seconds | None = Field(
        None, description="How long a queue that nobody hears is kept; else for good."
    )
    credentials: Path | None = None

    known_hosts: Path | None = Field(None, description="SFTP's; else the user's own.")

    # v02 has forms to choose from.
    name_in_topic: bool = False
    newline: bool = False
    exact_names: bool = False
    join: bool = Field(False, description="Join base URL and path whatever they end with.")

    # What is wanted, and where it goes.
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

    # How it is fetched.
    inflight: str = ".tmp"
    min_age: Seconds = 0.0
    attempts: int = Field(3, ge=1)
    retry_ttl: Seconds = 2 * 86400.0
    timeout: Seconds = 300.0
    concurrency: int = Field(16, ge=1)
    bandwidth: Bytes = Field(0, description="Bytes a second, all transfers together; 0: any.")
    overwrite: bool = True
    inplace: bool = True
    hold: Bytes = Field(0, description="Without inplace: bytes of parts at a time; 0: any.")
    hold_exchange: str | None = Field(None, description="Where those who fetch parts report.")
    hold_readers: int = Field(1, ge=1, description="So many have to, before a part goes.")
    preserve_mode: bool = True
    preserve_time: bool = True
    default_mode: Mode = None
    default_dir_mode: Mode = 0o775
    durable: bool = Field(True, description="Files are on the disk before they are done.")
    strict_sums: bool = Field(True, description="Refuse another sum than announced.")
    private_hosts: bool = Field(False, description="Posts may name hosts of inner networks.")
    file_directories: Paths = Field(
        [], description="Directories whose files posts may name by file: URLs."
    )

    # How it is announced.
    path: Paths = []
    post_base_url: str | None = None
    post_base_dir: Path | None = None
    sum: str = "s"
    blocksize: Bytes = Field(1, description="0: automatic, 1: never, else bytes.")
    partition: Literal["i", "p"] = "i"
    inline: Bytes = Field(0, description="Files up to this size travel in their posts (v03, wis2).")
    recursive: bool = True
    folders: bool = Field(False, description="Announce directories, too.")
    existing: bool = Field(False, description="watch: begin with what is there.")
    rescan: Seconds = Field(300.0, description="watch: between looks at the whole tree.")

    suppress_duplicates: Seconds | None = None
    suppress_basis: Literal["path", "name", "data"] = "path"

    # Who we are.
    source: str | None = None
    source_from_exchange: bool = False
    cluster: str | None = None
    to_clusters: str | None = None
    report_back: bool = False
    report_exchange: str | None = None
    destination: str | None = Field(None, description="sender: the URL to push to.")

    plugins: Many = Field([], description="A site's own code, as module:name.")

    state: Path | None = Field(None, description="Where queue names and retries are kept.")
    instance: int = Field(1, ge=1)
    instances: int = Field(1, ge=1, description="How many `penstock pump start` starts.")
    file: Path | None = Field(None, description="save, restore: the file.")
    idle: Seconds = Field(2.0, description="save: a queue quiet this long is empty.")


#: What components assume, where it is not what the model says.
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
    """A checked model of what was given; every problem is named at once."""
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


# A component's settings in TOML: the model's names, as they are.


def read_toml(path: Path, flags: Mapping[str, Any] | None = None) -> PumpSettings:
    """Flags count before the file; the file's name is the component's unless it says another."""
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return settings_of({"name": path.stem, **given, **(flags or {})}, f"{path}: ")
