"""`penstock hives`: the application for people who look for places, and for those who run them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, prepare
from penstock.cli.shutdown import stop_event
from penstock_hives.commands.forecast import backtest, forecast
from penstock_spark.commands.options import Master, SparkSettings, spark_settings

if TYPE_CHECKING:
    from penstock_hives.server.settings import EngineSettings


# `penstock hives alerts`: the process that tells people what they wanted to know.


def alerts(
    url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="A broker that tells of live figures; more are tried in turn."
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="PENSTOCK_DATABASE",
            help="A PostgreSQL instead of the embedded one.",
        ),
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Match figures and deals with what people want to be told, and push it to their devices.

    One such process is enough: a second does no harm, and no good.
    """
    import penstock_store
    from penstock.cli.client_options import DEFAULT_URL

    settings = prepare(file, pairs, data).settings
    with penstock_store.open(database, settings.data) as opened:
        asyncio.run(
            _run_alerts(opened.url, url or [DEFAULT_URL], settings.data / "hives", with_stdin)
        )


async def _run_alerts(database: str, brokers: Sequence[str], home: Path, with_stdin: bool) -> None:
    from penstock_hives.alerts.worker import open_alert_worker
    from penstock_hives.push.settings import PushSettings
    from penstock_hives.settings import HivesSettings

    production = HivesSettings(database=database).production
    async with (
        stop_event(with_stdin) as stop,
        open_alert_worker(
            database, brokers, PushSettings.beside(home), production=production
        ) as watch,
    ):
        running = asyncio.create_task(watch.run())
        ready = asyncio.create_task(watch.ready.wait())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((running, ready, stopped), return_when=asyncio.FIRST_COMPLETED)
            if watch.ready.is_set():
                typer.echo("penstock hives alerts ready: occupancy, deals")
            await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # it does not end by itself: whatever it raised
        finally:
            for task in (running, ready, stopped):
                task.cancel()
            # All of them, before what they use is closed: whichever ends last, and however.
            await asyncio.gather(running, ready, stopped, return_exceptions=True)


# `penstock hives analyse`: what the nights find out, at once; `pipeline run` does it once a day.
#
# Thin: `penstock_hives.analytics` does it.


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be a day such as 2026-01-31") from error


def analyse(
    day: Annotated[
        date | None,
        typer.Option(
            parser=_parse_day,
            metavar="DAY",
            show_default=False,
            help="The day to end with. [default: the last that is over everywhere]",
        ),
    ] = None,
    database: Database = None,
    master: Master = "local[*]",
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Find out what is popular, what compares how, what a deal has brought, and what stands out."""
    import penstock_store
    from penstock_hives.analytics.nightly import analyse as make
    from penstock_hives.analytics.nightly import settled_day
    from penstock_spark.session import flow_session

    home = prepare(file, pairs, data).settings.data
    now = datetime.now(UTC)
    wanted = day or settled_day(now)
    with (
        penstock_store.open(database, home) as opened,
        flow_session("analytics", master, None, spark_settings(spark)) as session,
    ):
        written = make(session, opened, wanted, now, lake=home / "lake")
    typer.echo(f"{wanted}:")
    for table, rows in written.items():
        typer.echo(f"  {table:<20} {rows:,}")


app = typer.Typer(help="Serve the hives application.", no_args_is_help=True)


app.command()(alerts)
app.command()(analyse)
app.command()(forecast)
app.command()(backtest)


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
    import penstock_store
    from penstock_hives.server.configuration import read_configuration

    settings = prepare(file, pairs, data).settings
    home = settings.data
    with penstock_store.open(database, home) as opened:
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
        asyncio.run(_run_server(lambda: read_configuration(site, flags), with_stdin))


async def _run_server(read: Callable[[], EngineSettings], with_stdin: bool) -> None:
    from penstock_hives.server.master import Master

    reload = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    try:
        async with stop_event(with_stdin) as stop:
            await Master(read).run(
                stop, reload, lambda url: typer.echo(f"penstock hives ready: {url}")
            )
    finally:
        with contextlib.suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGHUP)
