"""Flags that several commands share, and how they become a configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.core.logs import configure
from penstock.core.sources import Effective, load, overrides

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


def effective(
    file: Path | None = None,
    pairs: list[str] | None = None,
    data: Path | None = None,
    listen: list[str] | None = None,
) -> Effective:
    """The configuration of this process, given its flags."""
    flags: dict[str, tuple[str, Any]] = overrides(pairs or [])
    if data is not None:
        flags["data"] = ("flag --data", data)
    if listen:
        flags["broker.listen"] = ("flag --listen", listen)
    return load(os.environ, flags, file)


def prepare(
    file: Path | None = None,
    pairs: list[str] | None = None,
    data: Path | None = None,
    listen: list[str] | None = None,
) -> Effective:
    """The same for a process that runs for long: its logs begin, too."""
    found = effective(file, pairs, data, listen)
    configure(found.settings.log)
    return found
