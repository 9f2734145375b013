"""`penstock console`: inspects the subscriptions and advertisements of a broker, over its
management API.

Without a terminal, commands are the lines of standard input, up to the first that fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import click
import typer

from penstock.cli.options import MANAGEMENT_URL_HELP, ConfigFile, Overrides, effective
from penstock.client.management import call_management_api, management_url
from penstock.core.config import data_home
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


PROMPT = "Broker >>> "
#: Commands that are not sent to the broker.
LOCAL_COMMANDS = {
    "exit": "exit: leave",
    "cls": "cls: clear the screen",
    "batch": "batch FILE: run the commands in a file, a line each",
}
COMPLETIONS = (
    *("help", "info", "printsubs", "printadvs", "nohead", "classonly", "received"),
    *("sub", "csub", "adv", "pub", "unsub", "unadv", *LOCAL_COMMANDS),
)

Url = Annotated[
    str | None,
    typer.Argument(help=MANAGEMENT_URL_HELP),
]
Vhost = Annotated[str | None, typer.Option("--vhost", help="Virtual host.")]
Run = Annotated[
    list[str] | None,
    typer.Option("--run", metavar="COMMAND", help="Run this command and exit; repeatable."),
]


def console(
    url: Url = None,
    vhost: Vhost = None,
    run: Run = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Inspect and add subscriptions and advertisements of a broker; see `help`.

    `penstock console --run info`
    """
    settings = effective(file, pairs).settings.broker
    session = ConsoleSession(management_url(settings, url), vhost or settings.default_vhost)
    if run:
        for command in run:
            typer.echo(session.run(command))
        return
    is_terminal = sys.stdin.isatty()
    for line in _read_lines() if is_terminal else sys.stdin:
        if line.strip() in ("exit", "quit"):
            return
        try:
            _echo(session.run(line))
        except (PenstockError, ConnectionError) as error:
            if not is_terminal:
                raise
            typer.secho(str(error), fg="red", err=True)


class ConsoleSession:
    def __init__(self, url: str, vhost: str) -> None:
        self._url = url
        self._path = f"/api/content/{quote(vhost, safe='')}/console"

    def run(self, line: str) -> str:
        word, _, argument = line.strip().partition(" ")
        if word == "cls":
            click.clear()
            return ""
        if word in ("batch", "file"):
            line = self._batch(argument.strip())
        reply = call_management_api(self._url, self._path, {"command": line.rstrip("\n")})
        output: str = reply["output"]
        if reply["error"]:
            _echo(output)
            raise PreconditionFailed(reply["error"])
        return "\n".join([output, *LOCAL_COMMANDS.values()]) if word == "help" else output

    def _batch(self, name: str) -> str:
        try:
            return Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise NotFound(f"batch {name}: {error}") from error


def _echo(text: str) -> None:
    if text:
        typer.echo(text)


def _read_lines() -> Iterator[str]:
    session = prompt_session("console", COMPLETIONS)
    while True:
        try:
            yield session.prompt(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def prompt_session(name: str, words: Iterable[str]) -> PromptSession[str]:
    """A prompt with a history file of this name, and completion of the words."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    history = data_home() / f"{name}-history"
    history.parent.mkdir(parents=True, exist_ok=True)
    return PromptSession(
        history=FileHistory(str(history)),
        completer=WordCompleter(list(words), WORD=True),
        complete_while_typing=False,
    )
