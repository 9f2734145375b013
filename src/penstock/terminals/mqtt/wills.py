"""Wills: what a client wants said when it is gone without a word."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from penstock.broker.contract import RETAIN, Message
from penstock.broker.vhost import VirtualHost
from penstock.core.properties import encode_route
from penstock.terminals.mqtt import connect
from penstock.terminals.mqtt.properties import Property
from penstock.terminals.mqtt.topics import to_key
from penstock.terminals.mqtt.translation import flags_for, header_for


@dataclass(frozen=True, slots=True)
class Will:
    message: Message
    delay: int  #: seconds that the client may take to come back

    @classmethod
    def of(cls, will: connect.Will, exchange: str) -> Will:
        properties = dict(will.properties)
        delay = properties.pop(Property.WILL_DELAY, 0)
        flags = flags_for(will.qos, properties) | (RETAIN if will.retain else 0)
        header = header_for(properties, will.qos, len(will.payload))
        route = encode_route(exchange, to_key(will.topic.encode()).decode())
        return cls(Message(route, header, will.payload, flags), delay)

    def publish(self, vhost: VirtualHost) -> None:
        message = self.message
        if message.flags & RETAIN:
            vhost.retained.keep(message)
        exchange = vhost.exchanges.get(message.exchange)
        if exchange is not None:
            exchange.accept(message)

    def packed(self) -> dict[str, Any]:
        """As JSON has it: the will of a durable session survives the broker."""
        message = self.message
        parts = (message.route, message.header, message.body)
        return {
            "parts": [base64.b64encode(part).decode() for part in parts],
            "flags": message.flags,
            "delay": self.delay,
        }

    @classmethod
    def unpacked(cls, packed: dict[str, Any]) -> Will:
        route, header, body = (base64.b64decode(part) for part in packed["parts"])
        return cls(Message(route, header, body, packed["flags"]), packed["delay"])
