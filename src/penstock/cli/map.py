"""The commands there are: where each lives, and under which heading the help shows it.

Adding a command is adding its file and a line here. Errors of all commands pass through the
group below and leave as one line and an exit status (`cli/errors.py`).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from penstock.cli.arguments import reveal
from penstock.cli.equipment import EXTRA
from penstock.cli.errors import INTERRUPTED, exit_status
from penstock.core.errors import ConfigurationError, PenstockError
from penstock.core.redaction import redact

#: Heading → command → the module and what it is there: a function, or an application.
COMMANDS: Final = {
    "Run": {
        "up": "up:up",
        "broker": "broker:app",
        "store": "store:app",
        "demo": "demo:demo",
        "deploy": "deploy:deploy",
    },
    "Messages": {
        "pub": "pub:pub",
        "sub": "sub:sub",
        "adv": "adv:adv",
        "client": "client:client",
        "history": "history:history",
        "historian": "historian:historian",
    },
    "Files": {"pump": "pump:app"},
    "Hives": {"hives": "hives:app", "sensors": "sensors:app", "pipeline": "pipeline:app"},
    "Jobs": {"job": "job:app", "science": "science:app"},
    "Look": {
        "dashboards": "dashboards:dashboards",
        "console": "console:console",
        "config": "config:config",
        "version": "version:version",
    },
    "Administer": {"user": "user:app", "definitions": "definitions:app"},
}


class Map(TyperGroup):
    """The application's outermost group."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for heading, section in COMMANDS.items():
            if cmd_name in section:
                return _load(cmd_name, section[cmd_name], heading)
        return None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, reveal(args, os.environ))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (PenstockError, ConnectionError) as error:
            raise _ended(error) from error
        except ModuleNotFoundError as error:
            module = (error.name or "penstock").partition(".")[0]
            if module == "penstock":
                raise
            lack = ConfigurationError(f"{module} is not installed: {EXTRA}")
            raise _ended(lack) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def _ended(error: PenstockError | ConnectionError) -> typer.Exit:
    typer.secho("penstock: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(redact(str(error)).replace("\n", "\npenstock: "), err=True)
    return typer.Exit(exit_status(error))


def _load(name: str, place: str, heading: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"penstock.cli.{module}"), attribute)
    # Typer makes commands of functions only as part of an application: this one is for that.
    around = typer.Typer(rich_markup_mode="markdown")
    around.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name, rich_help_panel=heading)
    else:
        around.command(name, rich_help_panel=heading)(found)
    group = typer.main.get_group(around)
    return group.commands[name]
