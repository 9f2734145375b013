"""Conversion between messages and publications of the content language.

The attributes of a publication are the message's headers, with `class` among them; or, with content
type `application/x-padres`, the body is its text. A publication becomes a message of the first
kind, with its payload as the body.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.contract import PERSISTENT, PRIORITY, Message
from penstock.content.messages import Publication, Variable, attributes_from_headers
from penstock.content.parser import LATEST_TIMESTAMP, parse_publication
from penstock.core.basic_properties import (
    BasicProperties,
    decode_header,
    encode_header,
    encode_route,
)
from penstock.core.errors import PreconditionFailed

CONTENT_TYPE: Final = "application/x-padres"
#: The prefix of routing keys of publications; the class follows.
CLASS_KEY_PREFIX: Final = "$content."
_SHORT: Final = 255


def decode_publication(message: Message) -> Publication | None:
    """None if the message has no class."""
    properties = decode_header(message.header)
    if properties.content_type == CONTENT_TYPE:
        return parse_publication(_text(message))
    headers = properties.headers or {}
    class_name = headers.get("class")
    if not isinstance(class_name, str):
        return None
    return Publication(class_name, attributes_from_headers(headers))


def _text(message: Message) -> str:
    if message.spool is not None:
        raise PreconditionFailed(f"publication of {message.size} bytes is too large to be parsed")
    try:
        return message.body.decode()
    except UnicodeDecodeError as error:
        raise PreconditionFailed(f"the publication is not UTF-8: {error}") from None


def publication_route(exchange: str, class_name: str) -> bytes:
    """The route of a class, truncated to the length of a routing key."""
    key = (CLASS_KEY_PREFIX + class_name).encode()[:_SHORT].decode("utf-8", "ignore")
    return encode_route(exchange, key)


def encode_publication(
    publication: Publication,
    exchange: str,
    payload: bytes,
    *,
    message_id: str = "",
    time: float = 0.0,
    urgency: int = 0,
    durable: bool = True,
) -> Message:
    headers: dict[str, Any] = {"class": publication.class_name}
    for name, value in publication.attributes.items():
        if not isinstance(value, Variable) and len(name.encode()) <= _SHORT:
            headers[name] = value
    properties = BasicProperties(
        headers=headers,
        delivery_mode=2 if durable else 1,
        priority=urgency or None,
        message_id=message_id if 0 < len(message_id) <= _SHORT else None,
        # AMQP timestamps begin in 1970; readers support years up to 9999.
        timestamp=int(time) if 1 <= time <= LATEST_TIMESTAMP else None,
    )
    flags = (PERSISTENT if durable else 0) | (PRIORITY if urgency else 0)
    route = publication_route(exchange, publication.class_name)
    return Message(route, encode_header(properties, len(payload)), payload, flags)
