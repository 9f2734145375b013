"""A rendered answer: made once, handed out to all who ask for the same.

Its headers and its tag are made with it, and its compressed form when the first asks who can read
that. Handing it out is two messages, whatever it took to make.
"""

from __future__ import annotations

import gzip
import hashlib
from datetime import datetime
from typing import Final

from penstock.hives.app.engine.asgi import Headers, Message, Send

#: Smaller ones fit a packet anyway.
_COMPRESSED_FROM: Final = 1200
_JSON: Final = b"application/json"


class Page:
    """One answer to one question."""

    __slots__ = ("_plain", "_same", "_zipped", "body", "headers", "status", "tag", "until")

    def __init__(
        self,
        body: bytes,
        as_of: datetime,
        *,
        status: int = 200,
        content_type: bytes = _JSON,
        caching: bytes = b"public, max-age=5",
        more: Headers = (),
        until: float = float("inf"),
    ) -> None:
        self.status = status
        self.body = body
        self.until = until  #: by the loop's clock; made anew after that
        self.tag = b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
        self.headers = [
            (b"content-type", content_type),
            (b"x-as-of", as_of.isoformat().replace("+00:00", "Z").encode()),
            (b"cache-control", caching),
            (b"etag", self.tag),
            (b"vary", b"accept-encoding, authorization, x-api-key"),
            (b"access-control-allow-origin", b"*"),
            (b"x-content-type-options", b"nosniff"),
            *more,
        ]
        length = (b"content-length", str(len(body)).encode())
        self._plain = _messages(status, [*self.headers, length], body)
        self._same = _messages(304, self.headers, b"")
        self._zipped: tuple[Message, Message] | None = None

    async def send(self, send: Send, known: bytes | None, zipped: bool) -> None:
        """To one who has the tags in `known`, and may be able to read it compressed."""
        if known is not None and self.tag in known:
            start, end = self._same
        elif zipped and len(self.body) >= _COMPRESSED_FROM:
            start, end = self._compressed()
        else:
            start, end = self._plain
        await send(start)
        await send(end)

    def _compressed(self) -> tuple[Message, Message]:
        if self._zipped is None:
            body = gzip.compress(self.body, 5, mtime=0)
            length = (b"content-length", str(len(body)).encode())
            headers = [*self.headers, (b"content-encoding", b"gzip"), length]
            self._zipped = _messages(self.status, headers, body)
        return self._zipped


def _messages(
    status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[Message, Message]:
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
