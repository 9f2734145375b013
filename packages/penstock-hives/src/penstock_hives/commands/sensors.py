"""`penstock sensors`: a simulated fleet, recordings sent again, and configurations.

Thin: what is simulated is `penstock_hives.sensors.fleet`'s, how it is sent is that of the modules
beside it. Here are the flags and what they mean together.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.client_options import DEFAULT_URL, Url, log_warnings_plainly, parse_duration
from penstock.core.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True, help="Simulate sensors, replay them, configure one.")

FLEET = "The fleet"
WHEN = "When"
FILES = "Files"

Speed = Annotated[
    str,
    typer.Option(
        metavar="N", help="So many times as fast as it was: 60x; max is as fast as it goes."
    ),
]


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be a time such as 2026-01-31T12:00") from error


@app.command()
def simulate(
    url: Url = DEFAULT_URL,
    hives: Annotated[
        int, typer.Option(min=1, metavar="N", help="So many places.", rich_help_panel=FLEET)
    ] = 50,
    sensors: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Or as many as so many sensors take.", rich_help_panel=FLEET
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Another fleet, other days.", rich_help_panel=FLEET),
    ] = 0,
    no_quirks: Annotated[
        bool, typer.Option("--no-quirks", help="Nothing goes wrong.", rich_help_panel=FLEET)
    ] = False,
    quirk: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="How often something does: loss=0.05, wraps=off; repeatable, any wrong name "
            "lists them all.",
            rich_help_panel=FLEET,
        ),
    ] = None,
    backlog: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="What would have been sent in the last 30d, as fast as it goes.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="After the backlog, go on as time does.", rich_help_panel=WHEN),
    ] = False,
    start: Annotated[
        datetime | None,
        typer.Option(
            parser=_moment,
            metavar="MOMENT",
            help="Begin then and not now.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    lasting: Annotated[
        float | None,
        typer.Option(
            "--for",
            parser=parse_duration,
            metavar="TIME",
            help="End after 2h.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    speed: Speed = "1x",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write frames to a .jsonl or .parquet file, and send nothing.",
            rich_help_panel=FILES,
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what really happened to a .parquet or .csv file, and others beside it.",
            rich_help_panel=FILES,
        ),
    ] = None,
    events: Annotated[
        bool,
        typer.Option("--events", help="With --truth, people one by one.", rich_help_panel=FILES),
    ] = False,
    catalogue: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write hives and sensors to a .json file.", rich_help_panel=FILES
        ),
    ] = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Be a fleet of sensors: send what they would, with all their faults, and know the truth.

    `penstock sensors simulate --url mqtt://localhost`

    `penstock sensors simulate --backlog 7d --sensors 2000 --out week.parquet --truth truth.parquet`
    """
    from penstock_hives.commands.fleet import FleetPlan, FleetRun
    from penstock_hives.sensors.fleet import Fleet, Quirks
    from penstock_hives.sensors.publisher import parse_speed

    plan = FleetPlan.of(backlog, live, start, lasting, parse_speed(speed), datetime.now(UTC))
    if out is not None and plan.until is None:
        raise ConfigurationError("--out writes no endless file: say how long with --for 1d")
    quirks = (Quirks.none() if no_quirks else Quirks()).changed(quirk or [])
    fleet = Fleet(start=plan.start, seed=seed, hives=hives, sensors=sensors, quirks=quirks)
    log_warnings_plainly()
    run = FleetRun(fleet, plan, truth, events)
    if catalogue is not None:
        run.write_catalogue(catalogue)
    if out is not None:
        run.record(out)
    else:
        asyncio.run(run.send(url, with_stdin))
    typer.echo(run.summary())


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A recording.")],
    url: Url = DEFAULT_URL,
    speed: Speed = "1x",
    stamp: Annotated[
        bool,
        typer.Option(help="Say in a header when each was received first."),
    ] = True,
) -> None:
    """Send recorded frames again, byte by byte, as they came or faster.

    A recording is what `simulate --out` or `penstock sub --json` wrote.
    """
    from penstock_hives.commands.fleet import replay_file
    from penstock_hives.sensors.publisher import parse_speed

    log_warnings_plainly()
    sent = asyncio.run(replay_file(file, url, parse_speed(speed), stamp))
    typer.echo(f"{sent:,} frames sent")


@app.command()
def configure(
    sensor: Annotated[str, typer.Argument(metavar="ID", help="The sensor's serial.")],
    url: Url = DEFAULT_URL,
    threshold: Annotated[
        int, typer.Option(min=0, max=65535, metavar="CM", help="A person is nearer than this.")
    ] = 120,
    report_interval: Annotated[
        int, typer.Option(min=1, max=65535, metavar="MIN", help="Report at least so often.")
    ] = 30,
    status_interval: Annotated[
        int, typer.Option(min=1, max=65535, metavar="MIN", help="Send a status so often.")
    ] = 360,
    event_threshold: Annotated[
        int, typer.Option(min=1, max=65535, metavar="N", help="Report after so many events.")
    ] = 5,
    configuration_id: Annotated[
        int | None,
        typer.Option(
            "--id",
            min=1,
            max=2**32 - 1,
            show_default=False,
            metavar="N",
            help="What the sensor acknowledges. [default: the time]",
        ),
    ] = None,
    byte_order: Annotated[
        str, typer.Option(metavar="big|little", help="As the sensor has it.")
    ] = "big",
    timeout: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="To wait for the acknowledgement.")
    ] = 30.0,
) -> None:
    """Send a sensor its configuration, and wait for the status that acknowledges it."""
    from penstock.client import connect
    from penstock_hives.sensors import configurator
    from penstock_hives.sensors.protocol import ByteOrder, FirmwareProfile, SensorConfiguration
    from penstock_hives.sensors.protocol.topic import is_serial
    from penstock_hives.sensors.publisher import is_mqtt_url

    if not is_serial(sensor):
        raise typer.BadParameter(f"{sensor!r}: a serial has letters, digits, - and _ only")
    if byte_order not in list(ByteOrder):
        raise typer.BadParameter(f"--byte-order {byte_order!r} should be big or little")
    profile = FirmwareProfile(ByteOrder(byte_order))
    wanted = SensorConfiguration(
        configuration_id or int(time.time()),
        threshold,
        report_interval,
        status_interval,
        event_threshold,
    )
    log_warnings_plainly()

    async def ask() -> str:
        async with connect(url) as fabric:
            status = await configurator.configure_sensor(
                fabric, sensor, wanted, profile, mqtt=is_mqtt_url(url), timeout=timeout
            )
        since = status.started_at(datetime.now(UTC)).isoformat(" ", "minutes")
        return (
            f"{sensor} has configuration {status.configuration_id}: up since {since}, "
            f"battery {status.battery / 1000:.2f} V, signal {status.signal} dBm, "
            f"firmware {'.'.join(map(str, status.firmware))}"
        )

    typer.echo(asyncio.run(ask()))
