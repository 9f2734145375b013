"""`penstock console`: the console of a broker's content space, over its management API.

Without a terminal it reads its commands from standard input, and ends with the first that fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import click
import typer

from penstock.cli.management import ask, management_url
from penstock.cli.options import ConfigFile, Overrides, effective
from penstock.cli.prompt import prompt_session
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed

PROMPT = "Broker >>> "
#: What is done here, and not at the broker.
HERE = {
    "exit": "exit: leave",
    "cls": "cls: clear the screen",
    "batch": "batch FILE: run the commands in a file, a line each",
}
WORDS = (
    *("help", "info", "printsubs", "printadvs", "nohead", "classonly", "received"),
    *("sub", "csub", "adv", "pub", "unsub", "unadv", *HERE),
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
    there = Console(management_url(settings, url), vhost or settings.default_vhost)
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
    for line in _typed():
        if line.strip() in ("exit", "quit"):
            return
        try:
            _echo(there.run(line))
        except (PenstockError, ConnectionError) as error:
            typer.secho(str(error), fg="red", err=True)


class Console:
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
        answer = ask(self._url, self._path, {"command": line.rstrip("\n")})
        output: str = answer["output"]
        if answer["error"]:
            _echo(output)
            raise PreconditionFailed(answer["error"])
        return "\n".join([output, *HERE.values()]) if word == "help" else output

    def _batch(self, name: str) -> str:
        try:
            return Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise NotFound(f"batch {name}: {error}") from error


def _echo(text: str) -> None:
    if text:
        typer.echo(text)


def _typed() -> Iterator[str]:
    session = prompt_session("console", WORDS)
    while True:
        try:
            yield session.prompt(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
