"""Topics of sensors: `sensors/<serial>/<kind>` and `commands/sensor/<serial>`.

The topic determines the kind of a message; its length must match. AMQP routing keys have dots in
place of slashes; serials contain neither, so both forms are equivalent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock_hives.sensors.protocol.frame import MalformedFrame, RejectReason

#: Topic filters: messages of all sensors, and commands to all sensors.
ALL_SENSOR_TOPICS: Final = "sensors/#"
COMMAND_TOPICS: Final = "commands/sensor/+"

_SERIAL: Final = r"[A-Za-z0-9_-]{1,64}"
_TOPIC: Final = re.compile(rf"sensors([/.])({_SERIAL})\1(report|event|status)", re.ASCII)
_COMMAND: Final = re.compile(rf"commands([/.])sensor\1({_SERIAL})", re.ASCII)


class SensorMessageKind(StrEnum):
    REPORT = "report"
    EVENT = "event"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class SensorTopic:
    serial: str
    kind: SensorMessageKind

    @property
    def topic(self) -> str:
        return f"sensors/{self.serial}/{self.kind}"

    @property
    def routing_key(self) -> str:
        return f"sensors.{self.serial}.{self.kind}"

    @classmethod
    def parse(cls, name: str) -> SensorTopic:
        """Of a topic or a routing key."""
        match = _TOPIC.fullmatch(name)
        if match is None:
            raise MalformedFrame(RejectReason.UNKNOWN_TOPIC, repr(name))
        return cls(match[2], SensorMessageKind(match[3]))


def is_serial(text: str) -> bool:
    return re.fullmatch(_SERIAL, text, re.ASCII) is not None


def command_topic(serial: str) -> str:
    return f"commands/sensor/{serial}"


def parse_command_topic(name: str) -> str:
    """The serial of a command's topic or routing key."""
    match = _COMMAND.fullmatch(name)
    if match is None:
        raise MalformedFrame(RejectReason.UNKNOWN_TOPIC, repr(name))
    return match[2]
