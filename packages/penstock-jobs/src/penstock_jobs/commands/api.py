"""`penstock job api`: jobs over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.client_options import parse_duration
from penstock.cli.options import ConfigFile, Data, Database, Overrides, StopWithStdin, prepare
from penstock.cli.shutdown import stop_event
from penstock.core.errors import ConfigurationError
from penstock.core.units import MiB
from penstock_jobs.commands.worker import Keep
from penstock_store.http.server import is_local_only

if TYPE_CHECKING:
    from penstock_jobs.http.guard import ApiLimits

#: Below the data directory.
TOKEN_FILE: Final = "jobs.token"  # noqa: S105 - a file name
_KINDS: Final = ["fake", "build_models", "predict_models"]

ApiBrokerUrl = Annotated[
    str, typer.Option("--url", "--uri", metavar="URL", help="The broker, as amqp://user@host.")
]
Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any free port.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="PENSTOCK_JOBS_TOKEN",
        help="The token of requests: Authorization: Bearer TOKEN. By default one is "
        "generated on the first start and stored under --data. Prefer the environment "
        "variable: other users can see command lines.",
        show_envvar=True,
    ),
]
NoToken = Annotated[
    bool,
    typer.Option("--no-token", help="Accept requests of all programs and users of this machine."),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="An origin whose pages may use the API; repeatable."),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="An accepted host name, beside addresses; repeatable."),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(metavar="TYPE", help="An accepted type of job; repeatable."),
]
MaxBytes = Annotated[
    int, typer.Option("--max-bytes", min=1024, help="The maximum size of a request.")
]
Users = Annotated[
    bool,
    typer.Option(
        "--users",
        help="Accept the tokens of users (penstock job user token), who see what their role "
        "allows. The token of the server is an operator's.",
    ),
]


def api(
    url: ApiBrokerUrl = "amqp://localhost",
    database: Database = None,
    host: Host = "127.0.0.1",
    port: Port = 8081,
    token: Token = None,
    no_token: NoToken = False,
    origin: Origins = None,
    allow_host: AllowedHosts = None,
    kind: Kinds = None,
    max_bytes: MaxBytes = 64 * MiB,
    users: Users = False,
    keep: Keep = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Serve jobs over HTTP. Prints one line when ready, stops cleanly on SIGTERM or Ctrl-C."""
    from penstock_jobs.history.repository import RETENTION_SECONDS
    from penstock_jobs.http.guard import ApiLimits

    if not token and not users and not is_local_only(host):
        raise ConfigurationError(
            f"--host {host}: without a token, everybody who reaches this address can use the API. "
            "Set PENSTOCK_JOBS_TOKEN or --users, or listen on 127.0.0.1 behind a proxy with "
            "authentication"
        )
    home = prepare(file, pairs, data).settings.data
    if not token and not no_token and not users:
        token = _stored_token(home / TOKEN_FILE)
    limits = ApiLimits(
        max_bytes,
        token or None,
        origins=frozenset(origin or ()),
        hosts=frozenset((*(allow_host or ()), host)),
        kinds=frozenset(kind or _KINDS),
    )
    retention = RETENTION_SECONDS if keep is None else parse_duration(keep)
    asyncio.run(_run(url, database, home, limits, host, port, with_stdin, retention, users))


def _stored_token(path: Path) -> str:
    """The token in the file, which only its owner can read; generated if there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32))
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"{path}: the token cannot be stored: {error.strerror}") from error
    if not token:
        raise ConfigurationError(
            f"{path}: the token is empty; remove the file to generate a new one"
        )
    typer.echo(f"penstock job api token: {path}", err=True)
    return token


async def _run(
    url: str,
    database: str | None,
    home: Path,
    limits: ApiLimits,
    host: str,
    port: int,
    with_stdin: bool,
    retention: float,
    with_users: bool,
) -> None:
    import penstock_store
    from penstock_jobs.http.app import create_app
    from penstock_jobs.service import JobService
    from penstock_jobs.users.repository import UserRepository
    from penstock_store.http.server import serve_app

    async with stop_event(with_stdin) as stop:
        with penstock_store.open(database, home) as opened:
            users = UserRepository(opened) if with_users else None
            if users is not None:
                found = users.user_of_token
                limits = replace(limits, find_user=lambda token: asyncio.to_thread(found, token))
            async with (
                JobService(url, opened, retention=retention) as jobs,
                serve_app(create_app(jobs, limits, users), host, port) as address,
            ):
                typer.echo(f"penstock job api ready: {address}")
                await stop.wait()
