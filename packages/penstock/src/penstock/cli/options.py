"""Options that several commands share, and how they become a configuration."""

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
    typer.Option("--data", metavar="DIR", help="Data directory."),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="URL",
        help="Address to listen on, such as amqp://127.0.0.1:5672; repeatable.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="URL",
        help="Form or join a cluster: etcd://host:2379/NAME or postgresql://….",
    ),
]
Follow = Annotated[
    str | None,
    typer.Option(
        "--follow",
        metavar="URL",
        help="Copy this leader, penstock://host:port; promotion is by hand.",
    ),
]
#: Of the management API.
MANAGEMENT_URL_HELP: Final = (
    "Management API, as http://user:password@host:port. [default: of the configuration, as guest]"
)
ManagementUrl = Annotated[
    str | None, typer.Option("--url", metavar="URL", help=MANAGEMENT_URL_HELP)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
#: `penstock up` holds the other end of the pipe: parts end with it.
StopWithStdin = Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)]

#: A heading of the help.
PARTS: Final = "Other parts"
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="PENSTOCK_DATABASE",
        help="PostgreSQL to use instead of the embedded one.",
        rich_help_panel=PARTS,
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="PENSTOCK_CACHE",
        help="memcached to use instead of memory.",
        rich_help_panel=PARTS,
    ),
]


def effective(
    file: Path | None = None,
    pairs: list[str] | None = None,
    data: Path | None = None,
    listen: list[str] | None = None,
    cluster: str | None = None,
    follow: str | None = None,
) -> EffectiveSettings:
    """The configuration, with the options."""
    flags: dict[str, tuple[str, Any]] = parse_overrides(pairs or [])
    if data is not None:
        flags["data"] = ("flag --data", data)
    if listen:
        flags["broker.listen"] = ("flag --listen", listen)
    if cluster is not None:
        flags["broker.cluster.url"] = ("flag --cluster", cluster)
    if follow is not None:
        flags["broker.cluster.follow"] = ("flag --follow", follow)
    return load_settings(os.environ, flags, file)


def prepare(
    file: Path | None = None,
    pairs: list[str] | None = None,
    data: Path | None = None,
    listen: list[str] | None = None,
    cluster: str | None = None,
    follow: str | None = None,
) -> EffectiveSettings:
    """The same for a long-running process, whose logs are set up."""
    found = effective(file, pairs, data, listen, cluster, follow)
    configure_logs(found.settings.log)
    return found
