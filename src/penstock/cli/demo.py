"""`penstock demo`: a little traffic, so that there is something to look at.

A house with a thermometer in each room, told with every pattern of the client: readings are
published to whoever listens and kept in a stream; alarms are pushed to a worker, which pulls them
one by one; a service answers what the temperature of a room is now.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.fabric import DEFAULT_URL, Url, hush_libraries
from penstock.cli.options import ConfigFile, Overrides, prepare

if TYPE_CHECKING:
    from penstock.client import Fabric, Message

SUBJECT: Final = "demo.temperature"
STREAM: Final = "demo.readings"
QUEUE: Final = "demo.alarms"
SERVICE: Final = "demo.thermometer"

#: Rooms, and how far each is from comfortable.
ROOMS: Final = {"kitchen": 21.0, "attic": 24.0, "cellar": 14.0}
#: What a room swings by, up and down, and how many readings a swing takes.
SWING: Final = 3.0
PERIOD: Final = 60
WARM: Final = 26.5
#: The stream forgets; nobody wants a demonstration to fill a disk.
KEPT_BYTES: Final = 16 << 20
KEPT_FOR: Final = "1D"

Readings = dict[str, float]


def demo(
    url: Url = DEFAULT_URL,
    every: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="How often rooms are read.")
    ] = 1.0,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Send a little traffic: readings, a stream of them, a worker, a service."""
    prepare(file, pairs)
    hush_libraries()
    asyncio.run(_run(url, every, with_stdin))


async def _run(url: str, every: float, with_stdin: bool) -> None:
    from penstock.cli.lifetime import until_stopped
    from penstock.client import connect

    readings: Readings = {}
    async with until_stopped(with_stdin) as stop, connect(url) as fabric:
        async with fabric.serve(SERVICE, lambda request: temperature(readings, request)):
            work = [
                asyncio.create_task(_measure(fabric, readings, every)),
                asyncio.create_task(_attend(fabric)),
                asyncio.create_task(stop.wait()),
            ]
            typer.echo(f"penstock demo ready: {SUBJECT}.*")
            try:
                done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # what failed is raised here, and the supervisor starts us again
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)


def temperature(readings: Readings, request: Message) -> float:
    """What the service answers: the room asked for, as last read."""
    if request.text not in readings:
        raise LookupError(f"no room {request.text!r}; there are {', '.join(readings)}")
    return readings[request.text]


async def _measure(fabric: Fabric, readings: Readings, every: float) -> None:
    kept = fabric.stream(STREAM, max_age=KEPT_FOR, max_bytes=KEPT_BYTES)
    alarms = fabric.push(QUEUE)
    step = 0
    while True:
        for room, usual in ROOMS.items():
            celsius = round(usual + SWING * math.sin(step * math.tau / PERIOD), 1)
            readings[room] = celsius
            reading = {"room": room, "celsius": celsius}
            await fabric.publish(f"{SUBJECT}.{room}", reading)
            await kept.send(reading)
            if celsius >= WARM:
                await alarms.send(reading)
        step += 1
        await asyncio.sleep(every)


async def _attend(fabric: Fabric) -> None:
    """The worker: an alarm is acknowledged when what it asks for is done."""
    async for alarm in fabric.pull(QUEUE):
        room = alarm.json()["room"]
        await fabric.publish(f"demo.window.{room}", {"room": room, "window": "opened"})
