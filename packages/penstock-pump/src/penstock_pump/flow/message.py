"""A message as it was received, complete: to be forwarded, retried later or saved to a file."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client import ReceivedMessage
from penstock.client.message import JSON, TEXT
from penstock_pump.errors import BadPost


@dataclass(frozen=True, slots=True)
class PumpMessage:
    topic: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    redelivered: bool = field(default=False, compare=False)  #: it may have been handled before
    exchange: str = field(default="", compare=False)  #: that it was published to, where it is known

    def content_type(self) -> str | None:
        """The content type for a copy: JSON, text, or None for other bytes."""
        start = self.body[:64].lstrip()
        try:
            if start.startswith((b"{", b"[")):
                json.loads(self.body)
                return JSON
            self.body.decode()
            return TEXT
        except ValueError:
            return None


def received_message(message: ReceivedMessage, *, mqtt: bool) -> PumpMessage:
    """The first level of a topic of MQTT is the exchange."""
    exchange = message.address.partition("/")[0] if mqtt else ""
    return PumpMessage(
        message.address, message.body, message.headers, message.redelivered, exchange
    )


def message_to_json(pump_message: PumpMessage) -> str:
    fields: dict[str, Any] = {"topic": pump_message.topic, "headers": dict(pump_message.headers)}
    if pump_message.exchange:
        fields["exchange"] = pump_message.exchange
    try:
        fields["body"] = pump_message.body.decode()
    except UnicodeDecodeError:
        fields["base64"] = b64encode(pump_message.body).decode()
    return json.dumps(fields, ensure_ascii=False, default=str)


def message_from_json(text: str) -> PumpMessage:
    try:
        fields = json.loads(text)
        body = b64decode(fields["base64"]) if "base64" in fields else fields["body"].encode()
        return PumpMessage(
            str(fields["topic"]), body, dict(fields["headers"]), redelivered=True,
            exchange=str(fields.get("exchange", "")),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPost(f"{text[:80]!r} is not a saved message: {error}") from None
