"""Frames to a broker, by whatever URL: the same words as a topic over MQTT or a key over AMQP.

A frame that is sent at another time than its own says so in a header, `x-received-at`: a text of
Unix milliseconds, when it reached, or would have reached, the broker. Who reads frames of the past
has no other way to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.client import Fabric, Outflow

if TYPE_CHECKING:
    from penstock.hives.sensors.fleet import Frame

RECEIVED_AT: Final = "x-received-at"
#: So often we look whether the broker has taken what was posted.
_CHECK_EVERY: Final = 10_000
_MQTT: Final = ("mqtt", "mqtts", "ws", "wss")


def speaks_mqtt(url: str) -> bool:
    return urlsplit(url).scheme in _MQTT


def spelled(topic: str, mqtt: bool) -> str:
    """A topic or a pattern of topics, for the protocol that is spoken."""
    return topic if mqtt else topic.replace("/", ".").replace("+", "*")


class Sender:
    def __init__(self, fabric: Fabric, url: str, stamped: bool) -> None:
        self._fabric = fabric
        self._mqtt = speaks_mqtt(url)
        self._stamped = stamped
        self._outflows: dict[str, Outflow] = {}
        self._unsure: set[Outflow] = set()
        self.sent = 0

    async def send(self, frame: Frame) -> None:
        """Returns when there is room for the next; in order, for each sensor."""
        outflow = self._outflows.get(frame.topic)
        if outflow is None:
            outflow = self._fabric.publisher(spelled(frame.topic, self._mqtt))
            self._outflows[frame.topic] = outflow
        headers = {RECEIVED_AT: str(frame.at)} if self._stamped else None
        await outflow.post(frame.body, headers=headers)
        self._unsure.add(outflow)
        self.sent += 1
        if self.sent % _CHECK_EVERY == 0:
            await self.flush()

    async def flush(self) -> None:
        """Returns when the broker has all of it safe; raises what it said if it has not."""
        unsure, self._unsure = self._unsure, set()
        for outflow in unsure:
            await outflow.flush()
