"""The parts of one machine, in order of need, each a command of our own with flags of ours.

    broker, database ──> pipeline
                    └──> demo

A part that this machine cannot run is left out, and why is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cli import equipment
from penstock.cli.supervisor import Addresses, Part

BROKER: Final = "broker"
DATABASE: Final = "database"
PIPELINE: Final = "pipeline"
DEMO: Final = "demo"

#: A batch that is at hand is finished first, and a machine may be slow.
_PIPELINE_GRACE: Final = 30.0

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
        parts.append(Part(DATABASE, lambda _: [*_OWN, "store", _END, *_all(wishes)]))
    needs = [part.name for part in parts]
    if store and possible(
        PIPELINE, equipment.lacking_modules(equipment.PIPELINE), equipment.lacking_java()
    ):
        parts.append(
            Part(PIPELINE, lambda found: _pipeline(wishes, found), needs, _PIPELINE_GRACE, _NOISE)
        )
    if wishes.demo and possible(DEMO, equipment.lacking_modules(equipment.FLEET)):
        parts.append(Part(DEMO, lambda found: _demo(wishes, found, store), needs))
    return Plan(parts, left_out)


def flags(name: str, values: Iterable[object]) -> list[str]:
    return [word for value in values for word in (name, str(value))]


def amqp_of(addresses: Addresses) -> str | None:
    """Where the broker speaks AMQP, if it does."""
    return next((url for url in addresses[BROKER] if url.startswith("amqp://")), None)


def database_of(wishes: Wishes, addresses: Addresses) -> str | None:
    return wishes.database or next(iter(addresses.get(DATABASE, ())), None)


def _pipeline(wishes: Wishes, found: Addresses) -> list[str]:
    return [*_OWN, "pipeline", "run", _END, *_all(wishes), *_reaching(wishes, found)]


def _demo(wishes: Wishes, found: Addresses, store: bool) -> list[str]:
    reaching = _reaching(wishes if store else Wishes(), found)
    mqtt = [url for url in found[BROKER] if url.startswith("mqtt://")]
    reaching += flags("--mqtt", mqtt[:1])
    return [*_OWN, "demo", _END, *_all(wishes), *reaching, *wishes.demonstration]


def _all(wishes: Wishes) -> list[str]:
    return [*wishes.shared, *wishes.data]


def _reaching(wishes: Wishes, found: Addresses) -> list[str]:
    urls = {"--url": amqp_of(found), "--database": database_of(wishes, found)}
    return [word for name, url in urls.items() if url is not None for word in (name, url)]


def _lacking_store(wishes: Wishes) -> str | None:
    embedded = () if wishes.database else (equipment.EMBEDDED,)
    return equipment.lacking_modules((*equipment.DATABASE, *embedded))
