"""The commands and their headings in the help.

The commands of this package are in a table. Installed packages add theirs with the entry point
group `penstock.commands`; the heading is the package's name. A command's module is imported when it
is called. An error of a command becomes a line on standard error and an exit status (`errors.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from penstock.cli.arguments import restore_secrets
from penstock.cli.errors import INTERRUPTED, exit_status
from penstock.core.errors import ConfigurationError, PenstockError
from penstock.core.redaction import redact

GROUP: Final = "penstock.commands"
#: Heading → command → the module and its attribute: a function, or a Typer application.
COMMANDS: Final = {
    "Run": {
        "up": "penstock.cli.up.command:up",
        "broker": "penstock.cli.broker:app",
        "deploy": "penstock.cli.deploy:deploy",
        "overlay": "penstock.cli.overlay:app",
    },
    "Messages": {
        "pub": "penstock.cli.pub:pub",
        "sub": "penstock.cli.sub:sub",
        "adv": "penstock.cli.adv:adv",
        "client": "penstock.cli.client:client",
    },
    "Administer": {
        "console": "penstock.cli.console:console",
        "user": "penstock.cli.user:app",
        "cluster": "penstock.cli.cluster:app",
        "definitions": "penstock.cli.definitions:app",
        "backup": "penstock.cli.backup:backup",
        "restore": "penstock.cli.backup:restore",
        "trace": "penstock.cli.trace:app",
        "config": "penstock.cli.config:config",
        "doctor": "penstock.cli.doctor:doctor",
        "perf": "penstock.cli.perf:perf",
        "version": "penstock.cli.version:version",
    },
}


@cache
def installed_commands() -> dict[str, dict[str, str]]:
    """The commands of other packages, by heading: `penstock-hives` → Hives."""
    from importlib.metadata import entry_points

    found: dict[str, dict[str, str]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist else ""
        heading = package.removeprefix("penstock-").title()
        found.setdefault(heading, {})[entry.name] = entry.value
    return dict(sorted(found.items()))


class Map(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for section in _sections().values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # Our own first: a broker does not search the installed packages.
        return _find(cmd_name, COMMANDS) or _find(cmd_name, installed_commands())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, restore_secrets(args, os.environ))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (PenstockError, ConnectionError) as error:
            raise _ended(error) from error
        except ModuleNotFoundError as error:
            module = (error.name or "penstock").partition(".")[0]
            if module == "penstock":
                raise
            missing = ConfigurationError(f"{module} is not installed: pip install {module}")
            raise _ended(missing) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _ended(error: PenstockError | ConnectionError) -> typer.Exit:
    typer.secho("penstock: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(redact(str(error)).replace("\n", "\npenstock: "), err=True)
    return typer.Exit(exit_status(error))


def _sections() -> dict[str, dict[str, str]]:
    return COMMANDS | installed_commands()


def _find(name: str, commands: Mapping[str, Mapping[str, str]]) -> Any:
    for heading, section in commands.items():
        if name in section:
            return _load(name, section[name], heading)
    return None


def _load(name: str, path: str, heading: str) -> Any:
    module, _, attribute = path.partition(":")
    found = getattr(import_module(module), attribute)
    # Typer makes a command of a function only inside an application.
    parent = typer.Typer(rich_markup_mode="markdown")
    parent.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name, rich_help_panel=heading)
    else:
        parent.command(name, rich_help_panel=heading)(found)
    group = typer.main.get_group(parent)
    return group.commands[name]
