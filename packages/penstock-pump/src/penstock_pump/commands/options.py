"""Options of `penstock pump`, named as Sarracenia's, and how they become settings.

An option overrides the configuration file. Settings without an option of their own are set with
`--set`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.core.errors import ConfigurationError
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import Component, PumpSettings, read_toml, settings_of

_subscription = partial(typer.Option, rich_help_panel="Subscription")
_placement = partial(typer.Option, rich_help_panel="Selection and placement")
_posting = partial(typer.Option, rich_help_panel="Posting")

Conf = Annotated[
    Path | None,
    typer.Option("--conf", "-c", metavar="FILE", help="A .toml file, or a .conf of Sarracenia."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; repeatable."),
]
Name = Annotated[str | None, typer.Option(help="Names the queue and the state directory.")]
State = Annotated[Path | None, typer.Option(metavar="DIR", help="State directory.")]
Instance = Annotated[
    int | None, typer.Option(metavar="N", help="Number of this process among those on the queue.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every file.")]
Broker = Annotated[
    str | None,
    typer.Option("--broker", "-b", metavar="URL", help="amqp(s):// or mqtt(s)://"),
]
Exchange = Annotated[str | None, _subscription("--exchange", "-ex", help="[default: xpublic]")]
Subtopic = Annotated[
    list[str] | None,
    _subscription("--subtopic", "-sub", metavar="PATTERN", help="Directories, as 'a.b.#'."),
]
TopicPrefix = Annotated[
    list[str] | None,
    _subscription("--topic-prefix", "-tp", metavar="PREFIX", help="v02.post or v03."),
]
Queue = Annotated[
    str | None, _subscription("--queue", "-qn", help="Queue to use instead of the default.")
]
Accept = Annotated[list[str] | None, _placement(metavar="REGEX", help="URLs to accept.")]
Reject = Annotated[
    list[str] | None, _placement(metavar="REGEX", help="URLs to reject; checked first.")
]
Directory = Annotated[
    str | None, _placement("--directory", "-d", metavar="DIR", help="Where files are written.")
]
Mirror = Annotated[
    bool | None, _placement("--mirror/--no-mirror", help="Keep the directories of the path.")
]
Strip = Annotated[
    str | None, _placement(metavar="N|REGEX", help="Remove leading directories of the path.")
]
Flatten = Annotated[str | None, _placement(metavar="CHAR", help="Replace the slashes of the path.")]
PrivateHosts = Annotated[
    bool | None,
    _placement(
        "--private-hosts/--no-private-hosts",
        help="Posts may name hosts of private networks, this machine included.",
    ),
]
FileDirectories = Annotated[
    list[Path] | None,
    _placement(metavar="DIR", help="Posts may name files below it by file: URLs; repeatable."),
]
Destination = Annotated[
    str | None, _placement(metavar="URL", help="sender: the server to push files to.")
]
PostBroker = Annotated[
    str | None, _posting("--post-broker", "-pb", metavar="URL", help="[default: --broker]")
]
PostExchange = Annotated[
    str | None, _posting("--post-exchange", "-pe", "-px", help="Exchange to publish to.")
]
BaseUrl = Annotated[
    str | None,
    _posting(
        "--base-url",
        "--post-base-url",
        "-u",
        "-pbu",
        metavar="URL",
        help="Where others fetch the files.",
    ),
]
BaseDir = Annotated[
    Path | None,
    _posting(
        "--base-dir",
        "--post-base-dir",
        "-pbd",
        metavar="DIR",
        help="Announced paths are relative to it.",
    ),
]
Format = Annotated[str | None, _posting("--format", help="v02, v03 or wis2.")]
SumMethod = Annotated[str | None, _posting("--sum", metavar="METHOD", help="s d n 0 z,s …")]
Blocksize = Annotated[
    str | None, _posting(metavar="SIZE", help="Size of blocks; 0: automatic, 1: whole files.")
]
Metrics = Annotated[
    int | None, typer.Option(metavar="PORT", help="Serve Prometheus metrics on loopback.")
]
Data = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Data directory.")]

#: Options whose setting has another name.
_SETTINGS: Final = {
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
    **options: Any,
) -> PumpSettings:
    """The settings of the file, if there is one, overridden by the options."""
    given: dict[str, Any] = {
        _SETTINGS.get(name, name): value
        for name, value in options.items()
        if value not in (None, [])
    }
    given.update(parse_pairs(pairs))
    rules = [{"reject": each} for each in reject or ()]
    rules += [{"accept": each} for each in accept or ()]
    if rules:
        given["select"] = rules
    return read(conf, component, given)


def parse_pairs(pairs: Sequence[str] | None) -> dict[str, str]:
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
        known = {} if component is None else {"component": component}
        return read_toml(conf, {**given, **known})
    if conf.suffix in (".conf", ".inc"):
        return read_conf(conf, component, given)
    raise ConfigurationError(f"{conf}: should be a .toml file, or a .conf of Sarracenia")
