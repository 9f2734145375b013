"""What the store adds to `penstock up`: the embedded database, and the dashboards."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from penstock.cli.up.extension import (
    BROKER,
    DATABASE,
    Extension,
    Lines,
    UpOptions,
    flags,
    listen_flags,
)
from penstock.cli.up.supervisor import Addresses, Part
from penstock.core.config import UpSettings
from penstock_store.commands.dashboards import GATES, SECTIONS

DASHBOARDS: Final = "dashboards"
#: More than `STOP_TIMEOUT_SECONDS` of the database.
_DATABASE_GRACE: Final = 65.0


def extend(options: UpOptions) -> Extension:
    if not options.pipeline:
        return Extension()
    parts: list[Part] = []
    if options.database is None:
        parts.append(Part(DATABASE, lambda _: options.command("store"), grace=_DATABASE_GRACE))
    if options.applications and entry_points(group=SECTIONS):
        parts.append(
            Part(DASHBOARDS, lambda found: _dashboards(options, found), [BROKER, DATABASE])
        )
    return Extension(parts, addresses=_pages)


def _dashboards(options: UpOptions, found: Addresses) -> list[str]:
    gate = next((entry.name for entry in entry_points(group=GATES)), None)
    gated = ["--gate", gate] if gate else []
    http = [url for url in found[BROKER] if url.startswith("http://")]
    management = [url.replace("://", "://guest:guest@") for url in http[:1]]
    return [
        *options.command("dashboards", *gated),
        *options.amqp_and_database(found),
        *listen_flags(options.dashboards, UpSettings().dashboards),
        *flags("--mqtt", options.listener("mqtt", found)),
        *flags("--management", management),
    ]


def _pages(found: Addresses) -> Lines:
    return [(url, "dashboards") for url in found.get(DASHBOARDS, ())]
