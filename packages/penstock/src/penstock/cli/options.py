"""Flags that several commands share, and how they become a configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.core.config_sources import EffectiveSettings, load_settings, parse_overrides
from penstock.core.logs import configure_logs

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Read this file instead of ./penstock.toml (also: PENSTOCK_CONFIG).",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any setting; see `penstock config`."),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Where everything kept is kept."),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="URL",
        help="An address to listen on, such as amqp://127.0.0.1:5672; may be repeated.",
    ),
]

ManagementUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The management API, as http://user:password@host:port; "
        "by default where the configuration says, as guest.",
    ),
]

#: A heading of the help.
PARTS: Final = "Other parts"
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="PENSTOCK_DATABASE",
        help="A PostgreSQL instead of the embedded one.",
        rich_help_panel=PARTS,
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="PENSTOCK_CACHE",
        help="A memcached instead of memory.",
        rich_help_panel=PARTS,
    ),
]


def effective(
    file: Path | None = None,
    pairs: list[str] | None = None,
    data: Path | None = None,
    listen: list[str] | None = None,
) -> EffectiveSettings:
    """The configuration of this process, given its flags."""
    flags: dict[str, tuple[str, Any]] = parse_overrides(pairs or [])
    if data is not None:
        flags["data"] = ("flag --data", data)
    if listen:
        flags["broker.listen"] = ("flag --listen", listen)
    return load_settings(os.environ, flags, file)


def prepare(
    file: Path | None = None,
    pairs: list[str] | None = None,
    data: Path | None = None,
    listen: list[str] | None = None,
) -> EffectiveSettings:
    """The same for a process that runs for long: its logs begin, too."""
    found = effective(file, pairs, data, listen)
    configure_logs(found.settings.log)
    return found
