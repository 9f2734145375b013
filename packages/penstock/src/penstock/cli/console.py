"""`penstock console`: the console of a broker's content space, over its management API.

Without a terminal it reads its commands from standard input, and ends with the first that fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import click
import typer

from penstock.cli.options import ConfigFile, Overrides, effective
from penstock.client.management import call_management_api, management_url
from penstock.core.config import data_home
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


PROMPT = "Broker >>> "
#: What is done here, and not at the broker.
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
    typer.Argument(
        help="The management API, as http://user:password@host:port; "
        "by default where the configuration says, as guest."
    ),
]
Vhost = Annotated[str | None, typer.Option("--vhost", help="The virtual host to look at.")]
Run = Annotated[
    list[str] | None, typer.Option("--run", metavar="COMMAND", help="Run this and leave.")
]


def console(
    url: Url = None,
    vhost: Vhost = None,
    run: Run = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Look at a broker's subscriptions and advertisements, and inject some: help says more.

    `penstock console --run info`
    """
    settings = effective(file, pairs).settings.broker
    there = ConsoleSession(management_url(settings, url), vhost or settings.default_vhost)
    if run:
        for command in run:
            typer.echo(there.run(command))
        return
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip() in ("exit", "quit"):
                return
            _echo(there.run(line))
        return
    for line in _read_lines():
        if line.strip() in ("exit", "quit"):
            return
        try:
            _echo(there.run(line))
        except (PenstockError, ConnectionError) as error:
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
        answer = call_management_api(self._url, self._path, {"command": line.rstrip("\n")})
        output: str = answer["output"]
        if answer["error"]:
            _echo(output)
            raise PreconditionFailed(answer["error"])
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


# A prompt for people: with a history that lasts, and completion on demand.


def prompt_session(name: str, words: Iterable[str]) -> PromptSession[str]:
    """What was typed before is in a file by this name; the words can be completed."""
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
