"""The parts of one machine, in order of need, each a command of our own with flags of ours.

    broker, database ──> pipeline
                    ├──> demo
                    └──> hives, alerts, pump, jobs, history, dashboards

A part that this machine cannot run is left out, and why is told.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from penstock.cli import equipment
from penstock.cli.supervisor import Addresses, Part
from penstock.core.java import lacking_java

BROKER: Final = "broker"
DATABASE: Final = "database"
PIPELINE: Final = "pipeline"
DEMO: Final = "demo"
HIVES: Final = "hives"
ALERTS: Final = "alerts"
PUMP: Final = "pump"
JOBS: Final = "jobs"
HISTORY: Final = "history"
DASHBOARDS: Final = "dashboards"

#: Where people look for the public page and the dashboards; another, if that is taken.
_HIVES_PORT: Final = 8000
_DASHBOARDS_PORT: Final = 8080
#: A batch that is at hand is finished first, and a machine may be slow.
_PIPELINE_GRACE: Final = 30.0
#: The database writes all it has in memory (`STOP_SECONDS` of `store/embedded/process.py`); killed
#: before that, `penstock store` would leave it running.
_DATABASE_GRACE: Final = 65.0

#: What Java and Spark say at every start.
_NOISE: Final = (
    "Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level",
    "To adjust logging level",
    "Unable to load native-hadoop library",
    "Setting Spark log level",
)

_OWN: Final = (sys.executable, "-m", "penstock")
_END: Final = "--stop-with-stdin"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for."""

    shared: Sequence[str] = ()  #: flags that every part takes
    broker: Sequence[str] = ()  #: flags for the broker alone
    data: Sequence[str] = ()  #: where everything is kept
    database: str | None = None  #: its URL; none: the embedded one
    pipeline: bool = True
    demo: bool = True
    demonstration: Sequence[str] = ()  #: flags for it alone
    applications: bool = True
    overlay: bool = True  #: the broker speaks PADRES, which history is asked in
    certificate: str | None = None  #: the broker's, which parts that reach it by TLS trust


@dataclass(frozen=True, slots=True)
class Plan:
    parts: list[Part]
    left_out: dict[str, str]  #: what cannot be run here → why, and what to do


def plan(wishes: Wishes) -> Plan:
    left_out: dict[str, str] = {}
    parts = [Part(BROKER, lambda _: [*_OWN, "broker", _END, *_all(wishes), *wishes.broker])]

    def possible(name: str, *lacks: str | None) -> bool:
        reasons = [lack for lack in lacks if lack is not None]
        if reasons:
            left_out[name] = reasons[0]
        return not reasons

    store = wishes.pipeline and possible(DATABASE, _lacking_store(wishes))
    if store and wishes.database is None:
        store_command = [*_OWN, "store", _END, *_all(wishes)]
        parts.append(Part(DATABASE, lambda _: store_command, grace=_DATABASE_GRACE))
    needs = [part.name for part in parts]
    if store and possible(PIPELINE, equipment.lacking_modules(equipment.PIPELINE), lacking_java()):
        parts.append(
            Part(PIPELINE, lambda found: _pipeline(wishes, found), needs, _PIPELINE_GRACE, _NOISE)
        )
    if wishes.demo and possible(DEMO, equipment.lacking_modules(equipment.FLEET)):
        parts.append(Part(DEMO, lambda found: _demo(wishes, found, store), needs))
    if store and wishes.applications:
        parts += _applications(wishes, needs, possible)
    return Plan(parts, left_out)


def _applications(
    wishes: Wishes, needs: Sequence[str], possible: Callable[..., bool]
) -> Iterator[Part]:
    """What people use; the pages last, when there is something behind them."""

    def part(name: str, *command: str, port: int | None = None) -> Part:
        def words(found: Addresses) -> list[str]:
            listen = [] if port is None else ["--port", str(_free(port))]
            sensors = _sensors(wishes, found) if name == HIVES else []
            return [*_OWN, *command, _END, *_common(name, wishes, found), *listen, *sensors]

        return Part(name, words, needs)

    if possible(HIVES, equipment.lacking_modules(equipment.APPLICATION)):
        yield part(HIVES, "hives", "serve", "--workers", "1", port=_HIVES_PORT)
        yield part(ALERTS, "hives", "alerts")
    if wishes.demo and possible(PUMP, equipment.lacking_modules(equipment.PUMP)):
        yield part(PUMP, "pump", "demo")
    if possible(JOBS, equipment.lacking_modules(equipment.JOBS)):
        yield part(JOBS, "job", "worker", "--fork", "2", "--patience", "60")
    if wishes.overlay:
        yield part(HISTORY, "historian")
    if possible(DASHBOARDS, equipment.lacking_modules(equipment.DASHBOARDS)):
        yield part(DASHBOARDS, "dashboards", "--gate", "hives", port=_DASHBOARDS_PORT)


def flags(name: str, values: Iterable[object]) -> list[str]:
    return [word for value in values for word in (name, str(value))]


def _speaking(scheme: str, wishes: Wishes, found: Addresses) -> list[str]:
    """Where the broker speaks it, if it does: openly where it may be, for it is on this machine."""
    trusting = f"?cafile={quote(wishes.certificate)}" if wishes.certificate else ""
    openly = [url for url in found[BROKER] if url.startswith(f"{scheme}://")]
    by_tls = [url + trusting for url in found[BROKER] if url.startswith(f"{scheme}s://")]
    return [*openly, *by_tls][:1]


def database_of(wishes: Wishes, addresses: Addresses) -> str | None:
    return wishes.database or next(iter(addresses.get(DATABASE, ())), None)


def _pipeline(wishes: Wishes, found: Addresses) -> list[str]:
    return [*_OWN, "pipeline", "run", _END, *_all(wishes), *_reaching(wishes, found)]


def _demo(wishes: Wishes, found: Addresses, store: bool) -> list[str]:
    reaching = _reaching(wishes, found) if store else _broker(wishes, found)
    mqtt = flags("--mqtt", _speaking("mqtt", wishes, found))
    return [*_OWN, "demo", _END, *_all(wishes), *reaching, *mqtt, *wishes.demonstration]


def _common(name: str, wishes: Wishes, found: Addresses) -> list[str]:
    """Where a part of the applications finds what it works with."""
    reaching = _reaching(wishes, found)
    if name == JOBS:  # it has no configuration of its own
        return reaching
    if name == PUMP:  # files are in folders
        return [*_all(wishes), *_broker(wishes, found)]
    if name == HISTORY:
        reaching = ["--stream-url" if word == "--url" else word for word in reaching]
        reaching += flags("--url", _speaking("padres", wishes, found))
    return [*_all(wishes), *reaching]


def _sensors(wishes: Wishes, found: Addresses) -> list[str]:
    """Where sensors report, and where they get users of their own."""
    http = [url for url in found[BROKER] if url.startswith("http://")]
    management = [url.replace("://", "://guest:guest@") for url in http[:1]]
    return flags("--mqtt", _speaking("mqtt", wishes, found)) + flags("--management", management)


def _free(port: int) -> int:
    """That port, or 0 for any, if somebody else has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def _all(wishes: Wishes) -> list[str]:
    return [*wishes.shared, *wishes.data]


def _reaching(wishes: Wishes, found: Addresses) -> list[str]:
    database = database_of(wishes, found)
    return _broker(wishes, found) + flags("--database", [database] if database else ())


def _broker(wishes: Wishes, found: Addresses) -> list[str]:
    return flags("--url", _speaking("amqp", wishes, found))


def _lacking_store(wishes: Wishes) -> str | None:
    embedded = () if wishes.database else (equipment.EMBEDDED,)
    return equipment.lacking_modules((*equipment.DATABASE, *embedded))
