"""Messages as publications of the content language, and publications as messages.

A message's headers are the attributes, `class` among them; or, with the content type
`application/x-padres`, its body is the text of a publication. A publication that comes from
elsewhere becomes a message of the first kind, with its payload as the body.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.contract import PERSISTENT, PRIORITY, Message
from penstock.content.fast import parse_publication
from penstock.content.headers import attributes_of
from penstock.content.messages import Publication
from penstock.content.times import LATEST
from penstock.content.values import Variable
from penstock.core.errors import PreconditionFailed
from penstock.core.properties import Properties, decode_header, encode_header, encode_route

CONTENT_TYPE: Final = "application/x-padres"
#: How the routing key of a publication begins that had none; its class follows.
KEY: Final = "$content."
_SHORT: Final = 255


def publication_of(message: Message) -> Publication | None:
    """What a message says; None when it says nothing of its class."""
    properties = decode_header(message.header)
    if properties.content_type == CONTENT_TYPE:
        return parse_publication(_text(message))
    headers = properties.headers or {}
    class_name = headers.get("class")
    if not isinstance(class_name, str):
        return None
    return Publication(class_name, attributes_of(headers))


def _text(message: Message) -> str:
    if message.spool is not None:
        raise PreconditionFailed(f"a publication of {message.size} bytes is too long to be read")
    try:
        return message.body.decode()
    except UnicodeDecodeError as error:
        raise PreconditionFailed(f"the publication is not UTF-8: {error}") from None


def route_of(exchange: str, class_name: str) -> bytes:
    """Where a publication of a class goes by its name, as far as a routing key can hold that."""
    key = (KEY + class_name).encode()[:_SHORT].decode("utf-8", "ignore")
    return encode_route(exchange, key)


def message_of(
    publication: Publication,
    exchange: str,
    payload: bytes,
    *,
    message_id: str = "",
    time: float = 0.0,
    urgency: int = 0,
    durable: bool = True,
) -> Message:
    """A publication as any consumer of queues can use it."""
    headers: dict[str, Any] = {"class": publication.class_name}
    for name, value in publication.attributes.items():
        if not isinstance(value, Variable) and len(name.encode()) <= _SHORT:
            headers[name] = value
    properties = Properties(
        headers=headers,
        delivery_mode=2 if durable else 1,
        priority=urgency or None,
        message_id=message_id if 0 < len(message_id) <= _SHORT else None,
        # AMQP has no times before 1970, and who reads them none after 9999.
        timestamp=int(time) if 1 <= time <= LATEST else None,
    )
    flags = (PERSISTENT if durable else 0) | (PRIORITY if urgency else 0)
    route = route_of(exchange, publication.class_name)
    return Message(route, encode_header(properties, len(payload)), payload, flags)
