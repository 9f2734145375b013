"""Flags of `penstock pump`, named as Sarracenia's options, and how they become settings.

A flag counts before the file it may come with. What has no flag of its own is set by `--set`, by
the name it has in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.core.errors import ConfigurationError
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import Component, PumpSettings, read_toml, settings_of

SUBSCRIPTION_PANEL = "What is heard"
PLACEMENT_PANEL = "What is wanted, and where it goes"
POST_PANEL = "What is announced"

Conf = Annotated[
    Path | None,
    typer.Option("--conf", "-c", metavar="FILE", help="A .toml, or a .conf of Sarracenia's."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; may be repeated."),
]
Name = Annotated[str | None, typer.Option(help="Names the queue and what is kept on disk.")]
State = Annotated[Path | None, typer.Option(metavar="DIR", help="Where retries are kept.")]
Instance = Annotated[
    int | None, typer.Option(metavar="N", help="Which of several that share a queue this is.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="A line for every file.")]
Broker = Annotated[
    str | None,
    typer.Option("--broker", "-b", metavar="URL", help="amqp(s):// or mqtt(s)://"),
]
Exchange = Annotated[
    str | None, typer.Option(help="[default: xpublic]", rich_help_panel=SUBSCRIPTION_PANEL)
]
Subtopic = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN", help="Directories, as 'a.b.#'.", rich_help_panel=SUBSCRIPTION_PANEL
    ),
]
TopicPrefix = Annotated[
    list[str] | None,
    typer.Option(metavar="PREFIX", help="v02.post or v03.", rich_help_panel=SUBSCRIPTION_PANEL),
]
Queue = Annotated[
    str | None, typer.Option(help="Instead of our own.", rich_help_panel=SUBSCRIPTION_PANEL)
]
Accept = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="URLs that are wanted.", rich_help_panel=PLACEMENT_PANEL),
]
Reject = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REGEX", help="URLs that are not; come first.", rich_help_panel=PLACEMENT_PANEL
    ),
]
Directory = Annotated[
    str | None, typer.Option("--directory", "-d", metavar="DIR", rich_help_panel=PLACEMENT_PANEL)
]
Mirror = Annotated[
    bool | None,
    typer.Option("--mirror/--no-mirror", help="Keep the path.", rich_help_panel=PLACEMENT_PANEL),
]
Strip = Annotated[
    str | None,
    typer.Option(metavar="N|REGEX", help="Take directories away.", rich_help_panel=PLACEMENT_PANEL),
]
Flatten = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR", help="Make one name of the path.", rich_help_panel=PLACEMENT_PANEL
    ),
]
PrivateHosts = Annotated[
    bool | None,
    typer.Option(
        "--private-hosts/--no-private-hosts",
        help="Posts may name hosts of inner networks, this machine included.",
        rich_help_panel=PLACEMENT_PANEL,
    ),
]
FileDirectories = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="Posts may name files below it by file: URLs; may be repeated.",
        rich_help_panel=PLACEMENT_PANEL,
    ),
]
PostBroker = Annotated[str | None, typer.Option(metavar="URL", rich_help_panel=POST_PANEL)]
PostExchange = Annotated[str | None, typer.Option(rich_help_panel=POST_PANEL)]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        "--post-base-url",
        metavar="URL",
        help="Where others find the files.",
        rich_help_panel=POST_PANEL,
    ),
]
BaseDir = Annotated[
    Path | None,
    typer.Option(
        "--base-dir",
        "--post-base-dir",
        metavar="DIR",
        help="Taken away from paths to have those that are announced.",
        rich_help_panel=POST_PANEL,
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="v02, v03 or wis2.", rich_help_panel=POST_PANEL)
]
SumMethod = Annotated[
    str | None,
    typer.Option("--sum", metavar="METHOD", help="s d n 0 z,s …", rich_help_panel=POST_PANEL),
]
Blocksize = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="0: automatic, 1: never.", rich_help_panel=POST_PANEL),
]

Destination = Annotated[
    str | None,
    typer.Option(metavar="URL", help="sender: where files go.", rich_help_panel=PLACEMENT_PANEL),
]

Metrics = Annotated[
    int | None, typer.Option(metavar="PORT", help="Figures for Prometheus, on loopback.")
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where everything kept is kept.")
]

#: Flags whose setting has another name.
_RENAMED = {
    "base_url": "post_base_url",
    "base_dir": "post_base_dir",
    "form": "post_format",
    "sum_method": "sum",
}


def component_settings(
    component: Component,
    conf: Path | None = None,
    pairs: Sequence[str] | None = None,
    accept: Sequence[str] | None = None,
    reject: Sequence[str] | None = None,
    **flags: Any,
) -> PumpSettings:
    """The settings of a component: a file's, if there is one, and the flags before them."""
    given: dict[str, Any] = {
        _RENAMED.get(name, name): value for name, value in flags.items() if value not in (None, [])
    }
    given.update(pairs_given(pairs))
    rules = [{"reject": each} for each in reject or ()]
    rules += [{"accept": each} for each in accept or ()]
    if rules:
        given["select"] = rules
    return read(conf, component, given)


def pairs_given(pairs: Sequence[str] | None) -> dict[str, str]:
    given = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--set {pair!r} should be KEY=VALUE")
        given[key.replace("-", "_")] = value
    return given


def read(conf: Path | None, component: Component | None, given: Mapping[str, Any]) -> PumpSettings:
    if conf is None:
        return settings_of({"component": component, **given})
    if conf.suffix == ".toml":
        kind = {} if component is None else {"component": component}
        return read_toml(conf, {**given, **kind})
    if conf.suffix in (".conf", ".inc"):
        return read_conf(conf, component, given)
    raise ConfigurationError(f"{conf}: should be a .toml, or a .conf of Sarracenia's")
