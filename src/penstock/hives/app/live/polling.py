"""Polling: the same figures for who can have neither stream nor socket.

    GET /v1/live?hives=3,7      If-None-Match: "…"

The entity tag is made of what is told, so that any worker knows it again. 304 when nothing changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet

from penstock.hives.app.engine.asgi import Scope, Send, header, respond
from penstock.hives.app.live.bulletin import Bulletin, array
from penstock.hives.app.live.following import place


async def poll(
    scope: Scope, send: Send, bulletin: Bulletin, wanted: AbstractSet[int] | None
) -> None:
    figures = sorted(bulletin.whole(wanted), key=lambda figure: figure.hive)
    text = array(figures)
    tag = b'"%s"' % hashlib.blake2b(text, digest_size=12).hexdigest().encode()
    headers = [
        (b"etag", tag),
        (b"cache-control", b"no-cache"),
        (b"access-control-allow-origin", b"*"),
        (b"vary", b"accept"),
    ]
    if tag in (header(scope, b"if-none-match") or b""):
        await respond(send, 304, headers)
        return
    body = b'{"figures":%s,"at":"%s"}' % (text, place(bulletin).encode())
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await respond(send, 200, headers, body)
