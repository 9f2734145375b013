"""`penstock client`: an interactive PADRES client with history and completion.

The commands are in `penstock.client.padres.commands`. Received publications are printed above the
prompt. Without a terminal, commands are the lines of standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.client_options import log_warnings_plainly
from penstock.cli.console import prompt_session
from penstock.cli.padres import format_publication
from penstock.client.errors import FabricClosed
from penstock.client.padres import PadresClient
from penstock.client.padres.commands import ClientCommands, QuitRequested
from penstock.content.messages import Operator
from penstock.core.errors import ConfigurationError, PenstockError

Urls = Annotated[
    list[str] | None,
    typer.Argument(help="Brokers, such as padres://localhost:5680/Broker1; the first is default."),
]
Id = Annotated[str, typer.Option("--id", "-i", help="Client id.")]
Lasting = Annotated[
    bool, typer.Option("--lasting", help="Keep subscriptions and publications between connections.")
]
Batch = Annotated[
    Path | None, typer.Option("--batch", metavar="FILE", help="Commands to run first.")
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--commands",
        metavar="MODULE",
        help="Module whose `register(commands)` adds commands; repeatable.",
    ),
]


def client(
    urls: Urls = None,
    id: Id = "",  # noqa: A002 - PADRES' word
    lasting: Lasting = False,
    batch: Batch = None,
    plugins: Plugins = None,
) -> None:
    """Advertise, subscribe and publish interactively, in the content language.

    `penstock client padres://localhost`, then `help`.
    """
    log_warnings_plainly()
    asyncio.run(_client(PadresClient(*(urls or ()), id=id, lasting=lasting), batch, plugins or []))


async def _client(client: PadresClient, batch: Path | None, plugins: list[str]) -> None:
    commands = ClientCommands(client)
    for name in plugins:
        _load_plugin(commands, name)
    async with client:
        showing = asyncio.create_task(_show(client))
        try:
            if batch is not None:
                await _run(commands, f"batch {batch}")
            async for line in _prompt_lines(commands) if sys.stdin.isatty() else _stdin_lines():
                await _run(commands, line)
        except QuitRequested:
            pass
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)


def _load_plugin(commands: ClientCommands, name: str) -> None:
    sys.path.insert(0, "")
    try:
        register: Any = import_module(name).register
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"--commands {name}: {error}") from error
    register(commands)


async def _run(commands: ClientCommands, line: str) -> None:
    try:
        output = await commands.run(line)
    except PenstockError as error:
        typer.secho(str(error), fg="red", err=True)
    else:
        if output:
            typer.echo(output)


async def _show(client: PadresClient) -> None:
    try:
        async for received in client:
            typer.echo(f"<- {format_publication(received)}")
    except FabricClosed:
        return
    except PenstockError as error:
        typer.secho(str(error), fg="red", err=True)


async def _stdin_lines() -> AsyncIterator[str]:
    from penstock.cli.pub import PublishLoad

    async for line in PublishLoad(None, "text", 1, None):
        yield line


async def _prompt_lines(commands: ClientCommands) -> AsyncIterator[str]:
    from prompt_toolkit.patch_stdout import patch_stdout

    words = [*commands.names, "[class,eq,", "[class,", *(one.value for one in Operator)]
    session = prompt_session("client", words)
    with patch_stdout(raw=True):
        while True:
            try:
                yield await session.prompt_async(f"{commands.client.id or 'client'} >>> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
