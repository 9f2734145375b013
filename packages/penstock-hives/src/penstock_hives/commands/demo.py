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

from penstock.cli.client_options import DEFAULT_URL, Url, parse_duration
from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.core.data_directory import private_directory
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock_hives.sensors.simulation import DemoFleet

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
    from penstock_hives.occupancy.flow import SOURCES, STREAMS
    from penstock_hives.sensors.simulation import DemoFleet, DemoStateFile
    from penstock_spark.stream_declaration import declare_missing_streams

    home = prepare(file, pairs, data).settings.data
    private_directory(home, traversable=True)
    behind = timedelta(seconds=parse_duration(past))
    shown = DemoFleet(DemoStateFile(home / FILE), datetime.now(UTC), behind, hives, seed)
    if database is not None:
        _write_catalogue(database, shown)
    declare_missing_streams(
        url, STREAMS, SOURCES
    )  # or what is sent before the pipeline runs is lost
    asyncio.run(_run(url, mqtt or url, shown, with_stdin))


def _write_catalogue(url: str, shown: DemoFleet) -> None:
    import penstock_store
    from penstock_hives.demo_data import create_demo_data
    from penstock_hives.sensors import catalogue_writer
    from penstock_hives.settings import HivesSettings

    if HivesSettings().production:
        raise ConfigurationError(
            "PENSTOCK_HIVES_PRODUCTION is true: the demonstration would add people whose password "
            "everybody knows. Unset it, or leave out --database"
        )
    with penstock_store.Database(url) as database:
        penstock_store.migrate(url)
        catalogue_writer.write_catalogue(database, shown.fleet.hives, shown.fleet.sensors)
        create_demo_data(database, datetime.now(UTC))


async def _run(url: str, live_url: str, shown: DemoFleet, with_stdin: bool) -> None:
    """The past goes over AMQP, a few thousand frames a second; sensors speak MQTT."""
    from penstock.cli.shutdown import stop_event
    from penstock.client import connect
    from penstock_hives.sensors.protocol.topic import ALL_SENSOR_TOPICS, COMMAND_TOPICS
    from penstock_hives.sensors.publisher import (
        FramePacer,
        FramePublisher,
        is_mqtt_url,
        to_broker_address,
    )
    from penstock_hives.sensors.simulation import run_until_first, serve_commands

    async with (
        stop_event(with_stdin) as stop,
        connect(url) as fabric,
        connect(live_url) as sensors,
        sensors.subscribe(to_broker_address(COMMAND_TOPICS, is_mqtt_url(live_url))) as orders,
    ):
        # All of it says when it is from: what is made up for after a break, too.
        past, live = (
            FramePublisher(fabric, url, stamped=True),
            FramePublisher(sensors, live_url, stamped=True),
        )
        pace = FramePacer(int(time.time() * 1000), 1.0)
        ready = f"penstock demo ready: {ALL_SENSOR_TOPICS}"
        try:
            await run_until_first(
                shown.send(past, live, pace, lambda: typer.echo(ready)),
                serve_commands(orders, shown.fleet, live),
                stop.wait(),
            )
        finally:
            async with asyncio.timeout(FLUSH_SECONDS):
                await past.flush()
                await shown.save_state(live)
