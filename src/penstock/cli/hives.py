"""`penstock hives`: the application for people who look for places, and for those who run them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.hives_alerts import alerts
from penstock.cli.hives_analyse import analyse
from penstock.cli.lifetime import until_stopped
from penstock.cli.options import ConfigFile, Data, Overrides, prepare

if TYPE_CHECKING:
    from penstock.hives.app.engine.settings import EngineSettings

app = typer.Typer(help="Serve the hives application.", no_args_is_help=True)


app.command()(alerts)
app.command()(analyse)


@app.callback()
def hives() -> None:
    """Serve the hives application."""


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 8000 unless said.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes; one a core unless said.")
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="A broker that tells of live figures; more are tried in turn."
        ),
    ] = None,
    mqtt: Annotated[
        str | None, typer.Option(metavar="URL", help="The broker sensors are configured through.")
    ] = None,
    management: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Its management API, with an administrator's name."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="PENSTOCK_DATABASE",
            help="A PostgreSQL instead of the embedded one.",
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(metavar="URL", help="memcached://host:port, instead of one in each worker."),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The site's own configuration; read again on SIGHUP."),
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Serve the public page, live figures and the API; SIGHUP reloads code and configuration."""
    from penstock import store
    from penstock.hives.app.configuration import read

    settings = prepare(file, pairs, data).settings
    home = settings.data
    with store.open(database, home) as opened:
        flags: dict[str, dict[str, Any]] = {
            "engine": {
                "host": host,
                "port": port,
                "workers": workers,
                "log": settings.log.model_dump(),
            },
            "site": {"brokers": url, "pictures": home / "hives" / "pictures"},
            "application": {
                "database": opened.url,
                "cache": cache,
                "broker": mqtt or next(iter(url or ()), None),
                "management": management,
                "sensor_address": mqtt,
                "images": str(home / "hives" / "images"),
                "lake": str(home / "lake"),
                "rate_counts": str(home / "hives" / "requests"),
            },
            "identity": {"folder": str(home / "hives" / "identity")},
        }
        asyncio.run(_run(lambda: read(site, flags), with_stdin))


async def _run(read: Callable[[], EngineSettings], with_stdin: bool) -> None:
    from penstock.hives.app.engine.master import Master

    reload = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    try:
        async with until_stopped(with_stdin) as stop:
            await Master(read).run(
                stop, reload, lambda url: typer.echo(f"penstock hives ready: {url}")
            )
    finally:
        with contextlib.suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGHUP)
