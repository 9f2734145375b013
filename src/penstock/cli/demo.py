"""`penstock demo`: fifty hives whose sensors report as time goes by, so that there is much to see.

Hives and sensors are written to the database, if there is one; the fleet has a few hours behind it
when it begins, and goes on where it was when it is started again on the same data.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.durations import seconds
from penstock.cli.fabric import DEFAULT_URL, Url, hush_libraries
from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.core.data_directory import private_directory
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.hives.sensors.demonstration import Demonstration

FILE: Final = "demo.json"
FLUSH_SECONDS: Final = 5.0


def demo(
    url: Url = DEFAULT_URL,
    mqtt: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The same broker for sensors; over AMQP unless said."),
    ] = None,
    hives: Annotated[int, typer.Option(min=1, metavar="N", help="So many places.")] = 50,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Other days, other devices.")] = 0,
    past: Annotated[
        str, typer.Option(metavar="TIME", help="What a new fleet has behind it.")
    ] = "6h",
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="PENSTOCK_DATABASE",
            help="A PostgreSQL for the hives and sensors; without one they are in none.",
        ),
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Be a fleet of people counters that goes on where it was, for as long as it runs."""
    from penstock.hives.flow import SOURCES, STREAMS
    from penstock.hives.sensors.demonstration import Demonstration
    from penstock.hives.sensors.diary import Diary
    from penstock.pipeline.sources import ensure

    home = prepare(file, pairs, data).settings.data
    hush_libraries()
    private_directory(home, traversable=True)
    behind = timedelta(seconds=seconds(past))
    shown = Demonstration(Diary(home / FILE), datetime.now(UTC), behind, hives, seed)
    if database is not None:
        _write_catalogue(database, shown)
    ensure(url, STREAMS, SOURCES)  # or what is sent before the pipeline runs is lost
    asyncio.run(_run(url, mqtt or url, shown, with_stdin))


def _write_catalogue(url: str, shown: Demonstration) -> None:
    from penstock import store
    from penstock.hives import catalogue
    from penstock.hives.app.demonstration import furnish
    from penstock.hives.app.settings import Settings

    if Settings().production:
        raise ConfigurationError(
            "PENSTOCK_HIVES_PRODUCTION is true: the demonstration would add people whose password "
            "everybody knows. Unset it, or leave out --database"
        )
    with store.Database(url) as database:
        store.migrate(url)
        catalogue.write(database, shown.fleet.hives, shown.fleet.sensors)
        furnish(database, datetime.now(UTC))


async def _run(url: str, live_url: str, shown: Demonstration, with_stdin: bool) -> None:
    """The past goes over AMQP, a few thousand frames a second; sensors speak MQTT."""
    from penstock.cli.lifetime import until_stopped
    from penstock.client import connect
    from penstock.hives.sensors.messages.topic import COMMANDS, EVERYTHING
    from penstock.hives.sensors.pace import Pace
    from penstock.hives.sensors.sending import Sender, speaks_mqtt, spelled
    from penstock.hives.sensors.simulating import obey, until_first

    async with (
        until_stopped(with_stdin) as stop,
        connect(url) as fabric,
        connect(live_url) as sensors,
        sensors.subscribe(spelled(COMMANDS, speaks_mqtt(live_url))) as orders,
    ):
        # All of it says when it is from: what is made up for after a break, too.
        past, live = Sender(fabric, url, stamped=True), Sender(sensors, live_url, stamped=True)
        pace = Pace(int(time.time() * 1000), 1.0)
        ready = f"penstock demo ready: {EVERYTHING}"
        try:
            await until_first(
                shown.send(past, live, pace, lambda: typer.echo(ready)),
                obey(orders, shown.fleet, live),
                stop.wait(),
            )
        finally:
            async with asyncio.timeout(FLUSH_SECONDS):
                await past.flush()
                await shown.enter(live)
