"""Extensions of `penstock up` by installed packages: parts, lines on the panel, figures.

A package registers a function with the entry point group `penstock.up`. It takes the options of the
command and returns an `Extension`:

    [project.entry-points."penstock.up"]
    jobs = "penstock_jobs.up:extend"
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

from penstock.cli.up.supervisor import Addresses, Part
from penstock.core.addresses import DEFAULT_PORTS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

BROKER: Final = "broker"
DATABASE: Final = "database"

_PENSTOCK: Final = (sys.executable, "-m", "penstock")
#: Every part ends when its standard input does, so none outlives the supervisor.
_STOP_WITH_STDIN: Final = "--stop-with-stdin"


@dataclass(frozen=True, slots=True)
class UpOptions:
    data_dir: Path = Path()
    shared: Sequence[str] = ()  #: flags that every part takes
    broker: Sequence[str] = ()  #: flags for the broker alone
    data: Sequence[str] = ()  #: flags that name the data directory
    database: str | None = None  #: its URL; None: the embedded one
    pipeline: bool = True
    demo: bool = True
    hives: int = 50  #: venues of the demonstration
    applications: bool = True
    overlay: bool = True  #: the broker has a PADRES listener
    certificate: str | None = None  #: the broker's; parts that connect by TLS trust it
    site: str = "127.0.0.1:8000"  #: where the public page listens, …
    dashboards: str = "127.0.0.1:8080"  #: … and the dashboards

    def command(self, *words: str) -> list[str]:
        """A `penstock` command with the options that all parts take."""
        return [*self.bare_command(*words), *self.shared, *self.data]

    def bare_command(self, *words: str) -> list[str]:
        return [*_PENSTOCK, *words, _STOP_WITH_STDIN]

    def listener(self, scheme: str, addresses: Addresses) -> list[str]:
        """The broker's local address for a protocol, if it has one, without TLS if possible."""
        trust = f"?cafile={quote(self.certificate)}" if self.certificate else ""
        plain = [url for url in addresses[BROKER] if url.startswith(f"{scheme}://")]
        secure = [url + trust for url in addresses[BROKER] if url.startswith(f"{scheme}s://")]
        return [*plain, *secure][:1]

    def database_url(self, addresses: Addresses) -> str | None:
        return self.database or next(iter(addresses.get(DATABASE, ())), None)

    def amqp(self, addresses: Addresses) -> list[str]:
        """The option that names the broker."""
        return flags("--url", self.listener("amqp", addresses))

    def amqp_and_database(self, addresses: Addresses) -> list[str]:
        url = self.database_url(addresses)
        return [*self.amqp(addresses), *flags("--database", [url] if url else ())]


@dataclass(frozen=True, slots=True)
class Shell:
    """Commands to type in another terminal, with options only where they are needed."""

    addresses: Addresses
    data: Sequence[str] = ()  #: flags that name the data directory
    penstock: str = field(default_factory=lambda: _own_command())

    def url(self, scheme: str) -> str:
        """The option that names the broker, unless it has the default address."""
        default = f"{scheme}://127.0.0.1:{DEFAULT_PORTS[scheme]}"
        found = [url for url in self.addresses.get(BROKER, ()) if url.startswith(f"{scheme}://")]
        return f" --url {found[0]}" if found and default not in found else ""


class Figures(Protocol):
    """An application's figures on the panel, at one moment."""

    @property
    def headline(self) -> str | None:
        """The first result since the start, as a line; None: not yet."""

    def status(self, now: float) -> Text:
        """Text after the message rate. `now` is in seconds since 1970."""

    def draw(self, rows: int, width: int) -> Sequence[RenderableType]: ...


class Probe(Protocol):
    """Reads the figures of an application once a second, in a thread."""

    def read(self, addresses: Addresses) -> Figures: ...

    def close(self) -> None: ...


#: Lines of the panel: an address or a command, and its description.
Lines = Sequence[tuple[str, str]]


def _no_lines(_: Addresses) -> Lines:
    return ()


def _no_steps(_: Shell) -> Lines:
    return ()


@dataclass(frozen=True, slots=True)
class Extension:
    parts: Sequence[Part] = ()
    #: Parts that cannot run on this machine, with the reason and what to do.
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Addresses of the package's parts.
    addresses: Callable[[Addresses], Lines] = _no_lines
    #: Commands to try.
    steps: Callable[[Shell], Lines] = _no_steps
    probe: Callable[[], Probe] | None = None


def flags(name: str, values: Iterable[object]) -> list[str]:
    return [word for value in values for word in (name, str(value))]


def listen_flags(address: str, default: str) -> list[str]:
    """The options for an address; instead of a default port that is in use, any port."""
    host, _, port = address.rpartition(":")
    if address == default and not _is_free(int(port)):
        port = "0"
    return ["--host", host.strip("[]"), "--port", port]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _own_command() -> str:
    if shutil.which("penstock"):
        return "penstock"
    ours = Path(sys.executable).with_name("penstock")
    if not ours.exists():
        return "python -m penstock"
    near = os.path.relpath(ours)
    return str(ours) if near.startswith("..") else near
