"""`penstock demo`: a simulated fleet in real time that continues after a restart.

Hives and sensors are written to the database, if one is given, with eight weeks of history when
there is none. A new fleet first sends a few hours of reports.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.client_options import DEFAULT_URL, Url, parse_duration
from penstock.cli.options import ConfigFile, Data, Overrides, StopWithStdin, prepare
from penstock.core.data_directory import private_directory
from penstock.core.errors import ConfigurationError
from penstock_hives.commands.options import Hives, Seed

if TYPE_CHECKING:
    from penstock_hives.sensors.simulation import DemoFleet

FILE: Final = "demo.json"
FLUSH_SECONDS: Final = 5.0


def demo(
    url: Url = DEFAULT_URL,
    mqtt: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The broker's MQTT URL for sensors. [default: --url]"),
    ] = None,
    hives: Hives = 50,
    seed: Seed = 0,
    past: Annotated[
        str, typer.Option(metavar="TIME", help="Reports that a new fleet first sends.")
    ] = "6h",
    history: Annotated[
        int,
        typer.Option(
            metavar="WEEKS",
            min=0,
            max=52,
            help="Weeks of history in the database before a new fleet.",
        ),
    ] = 8,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="PENSTOCK_DATABASE",
            help="A PostgreSQL for hives and sensors.",
        ),
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Simulate a fleet of people counters that continues where it stopped."""
    from penstock_hives.occupancy.flow import SOURCES, STREAMS
    from penstock_hives.sensors.simulation import DemoFleet, DemoStateFile
    from penstock_spark.stream_declaration import declare_missing_streams

    home = prepare(file, pairs, data).settings.data
    private_directory(home, traversable=True)
    reports = timedelta(seconds=parse_duration(past))
    fleet = DemoFleet(DemoStateFile(home / FILE), datetime.now(UTC), reports, hives, seed)
    if database is not None:
        _write_catalogue(database, home, fleet, seed, timedelta(weeks=history))
    # Declared here, so that frames sent before the pipeline runs are not lost.
    declare_missing_streams(url, STREAMS, SOURCES)
    asyncio.run(_run(url, mqtt or url, fleet, with_stdin))


def _write_catalogue(url: str, home: Path, demo: DemoFleet, seed: int, span: timedelta) -> None:
    import penstock_store
    from penstock_hives.demo_data import create_demo_data
    from penstock_hives.demo_history import create_demo_history
    from penstock_hives.demo_pictures import create_demo_pictures
    from penstock_hives.sensors import catalogue_writer
    from penstock_hives.settings import HivesSettings, read_settings

    if read_settings(HivesSettings).production:
        raise ConfigurationError(
            "PENSTOCK_HIVES_PRODUCTION is true: the demonstration adds users with a public "
            "password. Unset it, or omit --database"
        )
    with penstock_store.Database(url) as database:
        penstock_store.migrate(url)
        catalogue_writer.write_catalogue(database, demo.fleet.hives, demo.fleet.sensors)
        if demo.is_new and span:
            inside = create_demo_history(database, demo.fleet, seed, span)
            if inside is not None:
                demo.begin_with(inside)
        if demo.is_new:
            create_demo_pictures(database, home / "hives" / "images", demo.fleet.hives)
        create_demo_data(database, datetime.now(UTC), [hive.id for hive in demo.fleet.hives])


async def _run(url: str, live_url: str, demo: DemoFleet, with_stdin: bool) -> None:
    """History is sent over AMQP, a few thousand frames a second; live frames over MQTT."""
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
        sensors.subscribe(to_broker_address(COMMAND_TOPICS, is_mqtt_url(live_url))) as commands,
    ):
        past, live = (
            FramePublisher(fabric, url, stamped=True),
            FramePublisher(sensors, live_url, stamped=True),
        )
        pacer = FramePacer(int(time.time() * 1000), 1.0)
        ready = f"penstock demo ready: {ALL_SENSOR_TOPICS}"
        try:
            await run_until_first(
                demo.send(past, live, pacer, lambda: typer.echo(ready)),
                serve_commands(commands, demo.fleet, live),
                stop.wait(),
            )
        finally:
            async with asyncio.timeout(FLUSH_SECONDS):
                await past.flush()
                await demo.save_state(live)
