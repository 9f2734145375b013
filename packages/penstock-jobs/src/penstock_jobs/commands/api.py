"""`penstock job api`: jobs over HTTP, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, prepare
from penstock.cli.shutdown import stop_event
from penstock.core.errors import ConfigurationError
from penstock.core.units import MiB
from penstock_store.http.server import is_local_only

if TYPE_CHECKING:
    from penstock_jobs.http.guard import ApiLimits

#: Below the data directory.
TOKEN_FILE: Final = "jobs.token"
_KINDS: Final = ["fake", "build_models", "predict_models"]


def api(
    url: Annotated[
        str, typer.Option("--url", "--uri", metavar="URL", help="The broker, as amqp://user@host.")
    ] = "amqp://localhost",
    database: Database = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 lets the system choose.")] = 8081,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_JOBS_TOKEN",
            help="Answer only who sends it: Authorization: Bearer TOKEN. By default one that is "
            "made on the first start and kept under --data. Others see command lines: use the "
            "variable.",
            show_envvar=True,
        ),
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option("--no-token", help="Answer every program and user of this machine."),
    ] = False,
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A site whose pages may use the API; may be repeated."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name it is reached by, beside addresses; may be repeated."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="What may be asked for; may be repeated."),
    ] = None,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", min=1024, help="The largest request.")
    ] = 64 * MiB,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", help="Stop when standard input ends.", hidden=True),
    ] = False,
) -> None:
    """Serve jobs over HTTP: one line when it is ready, a clean stop on SIGTERM or Ctrl-C."""
    from penstock_jobs.http.guard import ApiLimits

    if not token and not is_local_only(host):
        raise ConfigurationError(
            f"--host {host}: without a token, everybody who reaches this address may use the API. "
            "Set PENSTOCK_JOBS_TOKEN, or listen on 127.0.0.1, behind a proxy that asks"
        )
    home = prepare(file, pairs, data).settings.data
    if not token and not no_token:
        token = _stored_token(home / TOKEN_FILE)
    limits = ApiLimits(
        max_bytes,
        token or None,
        frozenset(origin or ()),
        frozenset((*(allow_host or ()), host)),
        frozenset(kind or _KINDS),
    )
    asyncio.run(_run(url, database, home, limits, host, port, with_stdin))


def _stored_token(path: Path) -> str:
    """The token in the file, which is its owner's alone; one is made if there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32))
        found = path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"{path}: the token cannot be kept: {error.strerror}") from error
    if not found:
        raise ConfigurationError(f"{path}: the token is empty; remove the file for a new one")
    typer.echo(f"penstock job api token: {path}", err=True)
    return found


async def _run(
    url: str,
    database: str | None,
    home: Path,
    limits: ApiLimits,
    host: str,
    port: int,
    with_stdin: bool,
) -> None:
    import penstock_store
    from penstock_jobs.http.app import create_app
    from penstock_jobs.service import JobService
    from penstock_store.http.server import serve_app

    async with stop_event(with_stdin) as stop:
        with penstock_store.open(database, home) as opened:
            async with (
                JobService(url, opened) as jobs,
                serve_app(create_app(jobs, limits), host, port) as address,
            ):
                typer.echo(f"penstock job api ready: {address}")
                await stop.wait()
