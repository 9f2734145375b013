"""Pushes to browsers: Web Push (RFC 8030), encrypted for the browser alone (RFC 8291).

Where to is a URL that a browser was given by its vendor and handed to us, so it is a stranger's
word: only addresses of known push services are taken, over TLS, and no redirection is followed.
Otherwise anyone could have this server call whatever it can reach.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from penstock.hives.app.domain.errors import Invalid
from penstock.hives.app.push.notes import Fate, Outcome, Push
from penstock.hives.app.push.vapid import Vapid

#: Vendors' push services; a name stands for all below it.
SERVICES: Final = (
    "fcm.googleapis.com",
    "push.services.mozilla.com",
    "push.apple.com",
    "notify.windows.com",
)
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
#: How long a service keeps a push for a browser that is off, in seconds.
TTL: Final = 6 * 3600
SECONDS: Final = 10.0
_GONE: Final = frozenset({404, 410})
_AGAIN: Final = frozenset({408, 425, 429})


def checked(address: str, services: Sequence[str] = SERVICES, *, local: bool = False) -> str:
    """The address, if it is one of a push service; `local`, one of this machine will do."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    if local and host in LOOPBACK and parts.scheme in ("http", "https"):
        return address
    known = any(host == each or host.endswith(f".{each}") for each in services)
    if parts.scheme != "https" or not known or port not in (None, 443) or parts.username:
        raise Invalid("this is no address of a push service we know")
    return address


def checked_keys(keys: Mapping[str, str]) -> dict[str, str]:
    """A browser's public key and secret, if a message can be encrypted for them."""
    found = {name: str(keys.get(name, "")) for name in ("p256dh", "auth")}
    try:
        _encrypted("https://example.invalid/", found, b"-")
    except ValueError as error:
        raise Invalid(f"the keys are not those of a browser: {error}") from error
    return found


class WebPushChannel:
    """Sends to the browsers' services."""

    def __init__(self, vapid: Vapid, client: httpx.AsyncClient | None = None) -> None:
        self._vapid = vapid
        self._client = client or httpx.AsyncClient(timeout=SECONDS, follow_redirects=False)

    async def send(self, push: Push) -> Outcome:
        document = {"title": push.title, "body": push.body, "link": push.link, **push.data}
        try:
            # Elliptic curves: milliseconds, which others on the loop need not wait.
            body = await asyncio.to_thread(
                _encrypted, push.address, push.keys, json.dumps(document).encode()
            )
        except ValueError as error:
            return Outcome(Fate.GONE, f"its keys are no use: {error}")
        headers = {
            "Authorization": self._vapid.authorization(push.address),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TTL),
            # A push that is sent again takes the place of the first.
            "Topic": f"n{push.notification_id}",
        }
        try:
            # What the service says beside its status is not read: the address is a visitor's, and
            # an answer may be of any size, or compressed from any.
            async with self._client.stream(
                "POST", push.address, content=body, headers=headers
            ) as response:
                return _outcome(response)
        except httpx.HTTPError as error:
            return Outcome(Fate.AGAIN, f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        await self._client.aclose()


def _encrypted(address: str, keys: Mapping[str, str], document: bytes) -> bytes:
    """Raises `ValueError` for keys nothing can be encrypted for."""
    # It brings two more clients of HTTP: for who registers a browser, and for who sends to one.
    from pywebpush import WebPusher, WebPushException  # type: ignore[import-untyped]

    try:
        pusher = WebPusher({"endpoint": address, "keys": dict(keys)})
        encoded: dict[str, Any] = pusher.encode(document)
        return bytes(encoded["body"])
    except (WebPushException, TypeError, IndexError) as error:
        raise ValueError(str(error)) from error


def _outcome(response: httpx.Response) -> Outcome:
    status = response.status_code
    if response.is_success:
        return Outcome(Fate.SENT)
    reason = f"the push service says {status}"
    if status in _GONE:
        return Outcome(Fate.GONE, reason)
    if status in _AGAIN or status >= 500:
        said = response.headers.get("retry-after", "")
        return Outcome(Fate.AGAIN, reason, float(said) if said.isdecimal() else None)
    return Outcome(Fate.REFUSED, reason)
