"""`penstock hives`: serve the application, its alerts, forecasts and analytics."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.metrics_server import serve_metrics
from penstock.cli.options import ConfigFile, Data, Database, Overrides, StopWithStdin, prepare
from penstock.cli.shutdown import stop_event
from penstock_hives.commands import admin
from penstock_hives.commands.forecast import backtest, forecast
from penstock_hives.commands.options import LiveBrokers
from penstock_spark.commands.options import Master, SparkSettings, spark_settings

if TYPE_CHECKING:
    from penstock_hives.server.settings import EngineSettings


def alerts(
    url: LiveBrokers = None,
    database: Database = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Match occupancy and deals with people's subscriptions, and push notifications.

    Also checks sensors, mails weekly reports to businesses, and sends their webhooks. Run one
    process; a second one is safe and idle.
    """
    import penstock_store
    from penstock.cli.client_options import DEFAULT_URL

    settings = prepare(file, pairs, data).settings
    with penstock_store.open(database, settings.data) as opened:
        asyncio.run(
            _run_alerts(opened.url, url or [DEFAULT_URL], settings.data / "hives", with_stdin)
        )


async def _run_alerts(database: str, brokers: Sequence[str], home: Path, with_stdin: bool) -> None:
    from penstock_hives.alerts.worker import BusinessMail, open_alert_worker
    from penstock_hives.identity.mail import open_mail_sender
    from penstock_hives.identity.settings import IdentitySettings
    from penstock_hives.push.settings import PushSettings
    from penstock_hives.settings import HivesSettings, read_settings

    settings = read_settings(HivesSettings, {"database": database})
    identity = read_settings(IdentitySettings, {"folder": home / "identity"})
    mail = open_mail_sender(identity)
    lake = home.parent / "lake"
    business = BusinessMail(mail, identity.sender, settings.dashboards, lake)
    push = PushSettings.beside(home)
    async with (
        stop_event(with_stdin) as stop,
        open_alert_worker(
            database, brokers, push, production=settings.production, business=business
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
                running.result()  # raises its error: it does not end by itself
        finally:
            for task in (running, ready, stopped):
                task.cancel()
            # Wait for all before closing what they use.
            await asyncio.gather(running, ready, stopped, return_exceptions=True)


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
            help="The last day. [default: the last that is over in all time zones]",
        ),
    ] = None,
    database: Database = None,
    master: Master = "local[*]",
    spark: SparkSettings = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
) -> None:
    """Compute popularity, comparisons, deal effects and insights now.

    `penstock pipeline run` does this once a day.
    """
    import penstock_store
    from penstock_hives.analytics.nightly import analyse as make
    from penstock_hives.analytics.nightly import settled_day
    from penstock_spark.lake import StorageLocation
    from penstock_spark.session import flow_session

    home = prepare(file, pairs, data).settings.data
    now = datetime.now(UTC)
    wanted = day or settled_day(now)
    with (
        penstock_store.open(database, home) as opened,
        flow_session("analytics", master, None, spark_settings(spark)) as session,
    ):
        written = make(session, opened, wanted, now, lake=StorageLocation.parse(home / "lake"))
    typer.echo(f"{wanted}:")
    for table, rows in written.items():
        typer.echo(f"  {table:<20} {rows:,}")


app = typer.Typer(help="Serve the hives application.", no_args_is_help=True)


app.add_typer(admin.app, name="admin")
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
    port: Annotated[int | None, typer.Option(help="The port. [default: 8000]")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes. [default: one per core]")
    ] = None,
    url: LiveBrokers = None,
    mqtt: Annotated[
        str | None, typer.Option(metavar="URL", help="The broker that sensors use.")
    ] = None,
    management: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Its management API, as http://administrator:password@host:port."
        ),
    ] = None,
    database: Database = None,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="memcached://host:port instead of a cache in each worker."
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Configuration of the site; read again on SIGHUP."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Serve HTTPS with this certificate chain, PEM."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The private key of the certificate.")
    ] = None,
    access_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an access log; the file may be rotated."),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port for Prometheus metrics, on loopback."),
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Serve the public page, live occupancy and the API; SIGHUP reloads code and configuration."""
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
                "certificate": certificate,
                "key": key,
                "access_log": access_log,
                "log": dataclasses.asdict(settings.log),
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
        asyncio.run(_run_server(lambda: read_configuration(site, flags), metrics, with_stdin))


async def _run_server(
    read: Callable[[], EngineSettings], metrics: int | None, with_stdin: bool
) -> None:
    from penstock_hives.server.master import Master

    reload = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    master = Master(read)
    try:
        async with stop_event(with_stdin) as stop, contextlib.AsyncExitStack() as opened:
            if metrics is not None:
                port, close = serve_metrics(metrics, master.metrics.registry)
                opened.callback(close)
                typer.echo(f"penstock hives metrics: http://127.0.0.1:{port}/metrics")
            await master.run(stop, reload, lambda url: typer.echo(f"penstock hives ready: {url}"))
    finally:
        with contextlib.suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGHUP)
