"""The actions on configurations that are no processes: list, show, features, declare, ….

Each works on one configuration, a component or all, as sr3's do.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import time
from dataclasses import asdict
from typing import Annotated, Final

import typer

from penstock.core.errors import ConfigurationError
from penstock_pump.commands.configurations import (
    DISABLED,
    PumpConfiguration,
    Targets,
    find_configurations,
)
from penstock_pump.commands.fleet import FleetMember, log_file, member_of, members
from penstock_pump.commands.options import Set, parse_pairs, read
from penstock_pump.commands.run import run
from penstock_pump.components.topology import (
    cleanup_component,
    declare_component,
    notify_component,
)
from penstock_pump.posts.checksums import ChecksumMethods
from penstock_pump.posts.formats import FORMATS
from penstock_pump.transports.transport import transport_schemes

_LOG_LINES: Final = 20
_FOLLOW_SECONDS: Final = 0.5


def list_configurations(targets: Targets = None) -> None:
    """List the configurations, and which of them are disabled."""
    for each in find_configurations(targets):
        typer.echo(f"{each}{'' if each.is_enabled else ' disabled'}")


def show(targets: Targets = None) -> None:
    """Show the settings of configurations that differ from the defaults."""
    for each in _enabled(targets):
        settings = member_of(each).settings
        typer.echo(f"# {each.path}: dialect {settings.dialect} ({settings.dialect_reason})")
        for name in sorted(settings.model_fields_set):
            value = getattr(settings, name)
            if name != "credentials":
                typer.echo(f"{name} = {_text(value)}")


def dump(targets: Targets = None) -> None:
    """Print the status of all processes as JSON."""
    states = {}
    for member in members(targets):
        current = member.current_status()
        states[member.name] = None if current is None else asdict(current)
    typer.echo(json.dumps(states, indent=2))


def features(targets: Targets = None) -> None:
    """Show the installed formats, checksum methods and transports, and call `on_features` of
    plugins."""
    typer.echo(f"formats {', '.join(FORMATS)}")
    typer.echo(f"checksums {', '.join(ChecksumMethods.installed().names)}")
    for scheme, missing in transport_schemes().items():
        typer.echo(f"transport {scheme} {f'not installed: {missing}' if missing else 'installed'}")
    for each in _enabled(targets):
        settings = member_of(each).settings
        if settings.plugins:
            asyncio.run(notify_component(settings, "on_features"))
            typer.echo(f"{each} plugins: {', '.join(settings.plugins)}")


def declare(targets: Targets = None) -> None:
    """Declare exchanges, queues and bindings at the brokers."""
    for each in _enabled(targets):
        names = asyncio.run(declare_component(member_of(each).settings))
        typer.echo(f"{each} declared: {', '.join(names) or 'nothing'}")


def cleanup(targets: Targets = None) -> None:
    """Delete the queues of stopped configurations at the brokers, with what is in them."""
    for each in _enabled(targets):
        _refuse_running(each, "cleanup")
        queues = asyncio.run(cleanup_component(member_of(each).settings))
        deleted = f"deleted queue {', '.join(queues)}" if queues else "has no queue"
        typer.echo(f"{each} {deleted}")


def remove(targets: Annotated[list[str], typer.Argument(metavar="COMPONENT/NAME...")]) -> None:
    """Delete queues, as cleanup does, and the files of stopped configurations."""
    for each in find_configurations(targets):
        if each.is_enabled:
            _refuse_running(each, "remove")
            asyncio.run(cleanup_component(member_of(each).settings))
        each.path.unlink()
        typer.echo(f"{each} removed")


def enable(targets: Annotated[list[str], typer.Argument(metavar="COMPONENT/NAME...")]) -> None:
    """Enable disabled configurations."""
    for each in find_configurations(targets):
        if not each.is_enabled:
            each.path.rename(each.path.with_name(each.path.name.removesuffix(DISABLED)))
        typer.echo(f"{each} enabled")


def disable(targets: Annotated[list[str], typer.Argument(metavar="COMPONENT/NAME...")]) -> None:
    """Disable stopped configurations: they are not started any more."""
    for each in find_configurations(targets):
        if each.is_enabled:
            _refuse_running(each, "disable")
            each.path.rename(each.path.with_name(each.path.name + DISABLED))
        typer.echo(f"{each} disabled")


def foreground(
    targets: Annotated[list[str], typer.Argument(metavar="COMPONENT/NAME")],
    pairs: Set = None,
) -> None:
    """Run one configuration in this terminal."""
    member = member_of(_single(targets))
    run(read(member.conf, member.settings.component, parse_pairs(pairs)), verbose=True)


def edit(targets: Annotated[list[str], typer.Argument(metavar="COMPONENT/NAME")]) -> None:
    """Edit a configuration with $EDITOR."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    subprocess.run([*shlex.split(editor), str(_single(targets).path)], check=True)


def log(
    targets: Annotated[list[str], typer.Argument(metavar="COMPONENT/NAME")],
    lines: Annotated[int, typer.Option("--lines", "-n", help="Lines from the end.")] = _LOG_LINES,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what is added.")] = False,
) -> None:
    """Show the end of the logs of a configuration."""
    files = [log_file(each.settings) for each in members(targets)]
    ends = {}
    for file in files:
        text = file.read_text(errors="replace") if file.exists() else ""
        ends[file] = len(text.encode())
        for line in text.splitlines()[-lines:]:
            typer.echo(line)
    while follow:
        for file in files:
            if file.exists() and file.stat().st_size > ends[file]:
                with file.open("rb") as opened:
                    opened.seek(ends[file])
                    added = opened.read()
                ends[file] += len(added)
                typer.echo(added.decode(errors="replace"), nl=False)
        time.sleep(_FOLLOW_SECONDS)


def _enabled(targets: list[str] | None) -> list[PumpConfiguration]:
    return [each for each in find_configurations(targets) if each.is_enabled]


def _single(targets: list[str]) -> PumpConfiguration:
    found = find_configurations(targets)
    if len(found) != 1:
        raise ConfigurationError(f"{' '.join(targets)} are {len(found)} configurations: name one")
    return found[0]


def _refuse_running(configuration: PumpConfiguration, action: str) -> None:
    found: list[FleetMember] = list(members([str(configuration.path)]))
    if any(each.current_status() is not None for each in found):
        raise ConfigurationError(f"{configuration} runs: stop it before {action}")


def _text(value: object) -> str:
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)
