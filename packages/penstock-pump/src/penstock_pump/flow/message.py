"""A message as it came, kept whole: to be sent on, tried again later, or saved to a file."""

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
    again: bool = field(default=False, compare=False)  #: it may have been worked on before

    def content_type(self) -> str | None:
        """As it is sent again: a JSON value, a text, or bytes that are neither."""
        start = self.body[:64].lstrip()
        try:
            if start.startswith((b"{", b"[")):
                json.loads(self.body)
                return JSON
            self.body.decode()
            return TEXT
        except ValueError:
            return None


def received_message(message: ReceivedMessage) -> PumpMessage:
    return PumpMessage(message.address, message.body, message.headers, message.redelivered)


def message_to_json(pump_message: PumpMessage) -> str:
    given: dict[str, Any] = {"topic": pump_message.topic, "headers": dict(pump_message.headers)}
    try:
        given["body"] = pump_message.body.decode()
    except UnicodeDecodeError:
        given["base64"] = b64encode(pump_message.body).decode()
    return json.dumps(given, ensure_ascii=False, default=str)


def message_from_json(text: str) -> PumpMessage:
    try:
        given = json.loads(text)
        body = b64decode(given["base64"]) if "base64" in given else given["body"].encode()
        return PumpMessage(str(given["topic"]), body, dict(given["headers"]), again=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPost(f"{text[:80]!r} is no saved message: {error}") from None
