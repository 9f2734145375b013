"""What a sender says about a message, as MQTT 5 carries it, both ways.

Headers are user properties: texts, and one that occurs several times is a list. What MQTT has no
property for goes as a user property: the message id as `message-id`, an error as `type`. MQTT 3.1.1
carries a body and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.client.fabric import Headers
from penstock.core.errors import PreconditionFailed, Unsupported

MESSAGE_ID: Final = "message-id"
TYPE: Final = "type"
#: The `type` of an answer that is an error.
ERROR: Final = "penstock.error"


def encode_properties(
    *,
    modern: bool,
    content_type: str | None = None,
    headers: Headers | None = None,
    ttl: float | None = None,
    message_id: str | None = None,
    reply_to: str | None = None,
    correlation: bytes | None = None,
    kind: str | None = None,
) -> Properties | None:
    if not modern:
        if headers or ttl is not None or message_id or reply_to:
            raise Unsupported(
                "MQTT 3.1.1 carries a body and nothing else: headers, a ttl, a message id and "
                "answers need MQTT 5 (leave ?version=3.1.1 away) or amqp://"
            )
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if content_type is not None:
        properties.ContentType = content_type
        properties.PayloadFormatIndicator = 1  # what has a type here is UTF-8
    if ttl is not None:
        properties.MessageExpiryInterval = max(0, math.ceil(ttl))
    if reply_to is not None:
        properties.ResponseTopic = reply_to
    if correlation is not None:
        properties.CorrelationData = correlation
    pairs = list(_pairs(headers or {}))
    pairs += [(name, text) for name, text in ((MESSAGE_ID, message_id), (TYPE, kind)) if text]
    if pairs:
        properties.UserProperty = pairs
    return properties


def read_headers(properties: Properties | None) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for name, value in getattr(properties, "UserProperty", ()):
        if name not in headers:
            headers[name] = value
        elif isinstance(headers[name], list):
            headers[name].append(value)
        else:
            headers[name] = [headers[name], value]
    return headers


def _pairs(headers: Headers) -> Iterable[tuple[str, str]]:
    for name, value in headers.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(each, str | int | float):
                raise PreconditionFailed(
                    f"header {name!r}: MQTT carries texts and numbers, not {type(each).__name__}"
                )
            yield name, str(each)
