"""A fleet on a broker: its frames are sent at their pace, and it does what it is told.

Commands on `commands/sensor/<serial>` change how a sensor behaves from its next five minutes on;
the status that acknowledges them is sent at once. What is no configuration, or for a sensor that
is not of this fleet, is left alone: others may use the topic, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

from penstock.client import Inflow, Message
from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock.hives.sensors.fleet import Fleet, Frame, Window
from penstock.hives.sensors.messages import Configuration, MalformedFrame
from penstock.hives.sensors.messages.topic import commanded
from penstock.hives.sensors.pace import Pace
from penstock.hives.sensors.sending import Sender


class Watcher(Protocol):
    """Whoever wants to know how far it is."""

    def sent(self, frame: Frame) -> None: ...

    def done(self, window: Window) -> None:
        """All of a window was sent."""


async def send_windows(
    windows: Iterable[Window], sender: Sender, pace: Pace, watcher: Watcher
) -> None:
    for window in windows:
        for frame in window:
            await pace.wait(frame.at)
            await sender.send(frame)
            watcher.sent(frame)
        watcher.done(window)
    await sender.flush()


async def obey(orders: Inflow, fleet: Fleet, sender: Sender) -> None:
    """Take commands for as long as there are any."""
    async for command in orders:
        answer = answer_to(fleet, command)
        if answer is not None:
            await sender.send(answer)
            await sender.flush()


def answer_to(fleet: Fleet, command: Message) -> Frame | None:
    log = get_logger("penstock.sensors")
    try:
        serial = commanded(command.address)
        configuration = Configuration.decode(command.body, fleet.sensor(serial).profile)
    except (MalformedFrame, NotFound) as error:
        log.warning("command ignored", address=command.address, reason=str(error))
        return None
    log.info("configured", sensor=serial, configuration=configuration.configuration_id)
    return fleet.configure(serial, configuration, datetime.now(UTC))


async def until_first(*works: Coroutine[Any, Any, Any]) -> None:
    """All at once, until the first ends; if it failed, that is raised. The others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
