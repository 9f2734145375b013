"""Send a sensor its configuration and wait until a status acknowledges it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from penstock.client import Fabric, NoReply
from penstock.core.errors import PreconditionFailed
from penstock_hives.sensors.protocol import (
    ByteOrder,
    FirmwareProfile,
    MalformedFrame,
    SensorConfiguration,
    SensorMessageKind,
    SensorTopic,
    StatusMessage,
)
from penstock_hives.sensors.protocol.topic import command_topic
from penstock_hives.sensors.publisher import to_broker_address

#: Plausible limits; in the other byte order values exceed them by far.
_WEAKEST_DBM: Final = 150
_STRONGEST_MV: Final = 15_000


async def configure_sensor(
    fabric: Fabric,
    serial: str,
    configuration: SensorConfiguration,
    profile: FirmwareProfile,
    *,
    mqtt: bool,
    timeout: float,
) -> StatusMessage:
    """The status that acknowledges the configuration. Over MQTT the command is retained, so a
    sensor that is offline receives it later; over AMQP the sensor has to be connected."""
    statuses = SensorTopic(serial, SensorMessageKind.STATUS).topic
    command = to_broker_address(command_topic(serial), mqtt)
    body = configuration.encode(profile)
    monitor = _StatusMonitor(serial, configuration, profile)
    # Subscribe first: the status may arrive before the broker has confirmed the command.
    async with fabric.subscribe(to_broker_address(statuses, mqtt)) as receiver:
        if mqtt:
            await fabric.mqtt.publish(command, body, retain=True)
        else:
            await fabric.publish(command, body)
        try:
            async with asyncio.timeout(timeout), aclosing(aiter(receiver)) as messages:
                async for message in messages:
                    status = monitor.check(message.body)
                    if status is not None:
                        return status
        except TimeoutError:
            pass
    raise NoReply(monitor.advice(timeout, mqtt))


class _StatusMonitor:
    """Checks statuses, and remembers others for the advice after a timeout."""

    def __init__(self, serial: str, wanted: SensorConfiguration, profile: FirmwareProfile) -> None:
        self._serial = serial
        self._wanted = wanted.configuration_id
        self._profile = profile
        self._other: str | None = None

    def check(self, body: bytes) -> StatusMessage | None:
        try:
            status = StatusMessage.decode(body, self._profile)
            mirrored = StatusMessage.decode(body, replace(self._profile, byte_order=self._opposite))
        except MalformedFrame as error:
            self._other = f"it sent a message that is no status ({error}): is it another device?"
            return None
        if status.configuration_id == self._wanted:
            if _plausible(mirrored) and not _plausible(status):
                raise PreconditionFailed(self._misread())
            return status
        if mirrored.configuration_id == self._wanted:
            self._other = f"it answered in the other byte order: use --byte-order {self._opposite}"
        elif self._other is None:
            self._other = f"its status still has configuration {status.configuration_id}"
        return None

    def advice(self, timeout: float, mqtt: bool) -> str:
        advice = self._other or (
            "it sent no status: is it switched on and connected to this broker? "
            f"watch it with: penstock sub 'sensors{'/' if mqtt else '.'}#'"
        )
        delivery = (
            "the configuration is retained, and the sensor receives it when it connects"
            if mqtt
            else "amqp:// does not retain it for a sensor that is offline: use mqtt://"
        )
        return (
            f"sensor {self._serial} has not acknowledged configuration {self._wanted} within "
            f"{timeout:g} s; {advice}; {delivery}"
        )

    def _misread(self) -> str:
        # The id alone proves nothing: misread and written in the same order, it is unchanged.
        return (
            f"sensor {self._serial} has acknowledged, but its status makes sense only if it is "
            f"{self._opposite}-endian: it has misread every number of the configuration; "
            f"send it again with --byte-order {self._opposite}"
        )

    @property
    def _opposite(self) -> ByteOrder:
        big = self._profile.byte_order is ByteOrder.BIG
        return ByteOrder.LITTLE if big else ByteOrder.BIG


def _plausible(status: StatusMessage) -> bool:
    return -_WEAKEST_DBM <= status.signal <= 0 and status.battery <= _STRONGEST_MV
