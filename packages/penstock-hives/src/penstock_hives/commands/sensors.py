"""`penstock sensors`: simulate a fleet, replay recordings, configure a sensor."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.client_options import DEFAULT_URL, Url, log_warnings_plainly, parse_duration
from penstock.cli.options import StopWithStdin
from penstock.core.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True, help="Simulate sensors, replay them, configure one.")

FLEET = "The fleet"
WHEN = "When"
FILES = "Files"

Speed = Annotated[
    str, typer.Option(metavar="N", help="Speed, such as 60x or 0.5x; max is without limit.")
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
        int, typer.Option(min=1, metavar="N", help="Number of hives.", rich_help_panel=FLEET)
    ] = 50,
    sensors: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of sensors, instead.", rich_help_panel=FLEET),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Random seed.", rich_help_panel=FLEET),
    ] = 0,
    no_quirks: Annotated[
        bool, typer.Option("--no-quirks", help="No faults.", rich_help_panel=FLEET)
    ] = False,
    quirk: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Frequency of a fault, such as loss=0.05 or wraps=off; may be repeated. "
            "An unknown name lists all names.",
            rich_help_panel=FLEET,
        ),
    ] = None,
    backlog: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Send the frames of the last TIME, such as 30d, at full speed.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="After the backlog, continue in real time.", rich_help_panel=WHEN
        ),
    ] = False,
    start: Annotated[
        datetime | None,
        typer.Option(
            parser=_moment,
            metavar="MOMENT",
            help="Start time. [default: now]",
            rich_help_panel=WHEN,
        ),
    ] = None,
    lasting: Annotated[
        float | None,
        typer.Option(
            "--for",
            parser=parse_duration,
            metavar="TIME",
            help="Duration, such as 2h.",
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
            help="Write the ground truth to .parquet or .csv files.",
            rich_help_panel=FILES,
        ),
    ] = None,
    events: Annotated[
        bool,
        typer.Option("--events", help="With --truth, each passage.", rich_help_panel=FILES),
    ] = False,
    catalogue: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write hives and sensors to a .json file.", rich_help_panel=FILES
        ),
    ] = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Simulate a fleet of sensors with realistic faults; write the ground truth on request.

    `penstock sensors simulate --url mqtt://localhost`

    `penstock sensors simulate --backlog 7d --sensors 2000 --out week.parquet --truth truth.parquet`
    """
    from penstock_hives.commands.fleet import FleetPlan, FleetRun
    from penstock_hives.sensors.fleet import Fleet, Quirks
    from penstock_hives.sensors.publisher import parse_speed

    plan = FleetPlan.of(backlog, live, start, lasting, parse_speed(speed), datetime.now(UTC))
    if out is not None and plan.until is None:
        raise ConfigurationError("--out needs an end: add --for 1d or --backlog 1d")
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
        typer.Option(help="Add the header x-received-at with the original time."),
    ] = True,
) -> None:
    """Send recorded frames again, byte for byte, at their original speed or faster.

    A recording is a file of `simulate --out` or the output of `penstock sub --json`.
    """
    from penstock_hives.commands.fleet import replay_file
    from penstock_hives.sensors.publisher import parse_speed

    log_warnings_plainly()
    sent = asyncio.run(replay_file(file, url, parse_speed(speed), stamp))
    typer.echo(f"{sent:,} frames sent")


@app.command()
def configure(
    sensor: Annotated[str, typer.Argument(metavar="ID", help="Serial of the sensor.")],
    url: Url = DEFAULT_URL,
    threshold: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="CM", help="Distance within which a person is counted."
        ),
    ] = 120,
    report_interval: Annotated[
        int, typer.Option(min=1, max=65535, metavar="MIN", help="Reporting interval.")
    ] = 30,
    status_interval: Annotated[
        int, typer.Option(min=1, max=65535, metavar="MIN", help="Status interval.")
    ] = 360,
    event_threshold: Annotated[
        int, typer.Option(min=1, max=65535, metavar="N", help="Events that trigger a report.")
    ] = 5,
    configuration_id: Annotated[
        int | None,
        typer.Option(
            "--id",
            min=1,
            max=2**32 - 1,
            show_default=False,
            metavar="N",
            help="Configuration id. [default: the Unix time]",
        ),
    ] = None,
    byte_order: Annotated[
        str, typer.Option(metavar="big|little", help="Byte order of the sensor.")
    ] = "big",
    timeout: Annotated[
        float,
        typer.Option(min=0.0, metavar="SECONDS", help="Time to wait for the acknowledgement."),
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

    async def send() -> str:
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

    typer.echo(asyncio.run(send()))
