"""Destination paths: `/queue/NAME`, `/exchange/NAME[/KEY]`, `/stream/NAME`, `/topic/KEY`.

The same strings are AMQP 1.0 addresses. A name with a slash in it is percent-encoded. And the
folder on disk that goes with a name.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from urllib.parse import quote, unquote

from penstock.core.errors import NotFound

#: `/topic/KEY` publishes to and subscribes from this exchange.
TOPIC_EXCHANGE = "amq.topic"


@dataclass(frozen=True, slots=True)
class Path:
    kind: str  #: "queue" (streams are queues too) or "exchange"
    name: str
    key: str = ""

    def __str__(self) -> str:
        path = f"/{self.kind}/{quote(self.name, safe='')}"
        return f"{path}/{quote(self.key, safe='')}" if self.key else path


def parse(path: str) -> Path:
    """Read a destination path; raises `NotFound` for one that names nothing."""
    match path.split("/"):
        case ["", "queue" | "stream", name] if name:
            return Path("queue", unquote(name))
        case ["", "exchange", name]:
            return Path("exchange", unquote(name))
        case ["", "exchange", name, key]:
            return Path("exchange", unquote(name), unquote(key))
        case ["", "topic", *words] if words and words[0]:
            return Path("exchange", TOPIC_EXCHANGE, unquote("/".join(words)))
    raise NotFound(
        f"'{path}' is not a destination: use /queue/NAME, /exchange/NAME[/KEY], /stream/NAME "
        "or /topic/KEY"
    )


def folder(name: str) -> str:
    """A directory's name for any name a peer may give: what is too long is hashed."""
    content = name.encode("utf-8", "surrogateescape")
    if len(content) > 180:  # file systems stop at 255, and base64 makes four bytes of three
        return "~" + hashlib.sha256(content).hexdigest()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
