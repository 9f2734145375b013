"""Pushes to browsers: Web Push (RFC 8030), encrypted for the browser (RFC 8291), signed (VAPID).

The endpoint URL comes from the client. Only hosts of known push services are accepted, over TLS,
and redirects are not followed; else clients could make this server call internal addresses.

Browsers tie a subscription to the public VAPID key (RFC 8292), so the key is never rotated.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.core.errors import ConfigurationError
from penstock_hives.errors import invalid_field
from penstock_hives.key_files import create_key_file, read_key_file
from penstock_hives.push.models import PushMessage, PushOutcome, PushStatus

#: Push services of browser vendors, with their subdomains.
SERVICES: Final = (
    "fcm.googleapis.com",
    "push.services.mozilla.com",
    "push.apple.com",
    "notify.windows.com",
)
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
#: How long a service stores a push for an offline browser, in seconds.
TTL: Final = 6 * 3600
WEBPUSH_TIMEOUT: Final = 10.0
_GONE: Final = frozenset({404, 410})
_AGAIN: Final = frozenset({408, 425, 429})


def check_endpoint(address: str, services: Sequence[str] = SERVICES, *, local: bool = False) -> str:
    """The address, if it is one of a push service; `local` allows loopback addresses."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    if local and host in LOOPBACK and parts.scheme in ("http", "https"):
        return address
    known = any(host == each or host.endswith(f".{each}") for each in services)
    if parts.scheme != "https" or not known or port not in (None, 443) or parts.username:
        raise invalid_field("address", "must be an https URL of a known push service")
    return address


def check_keys(keys: Mapping[str, str]) -> dict[str, str]:
    """A browser's public key and secret, checked by encrypting with them."""
    found = {name: str(keys.get(name, "")) for name in ("p256dh", "auth")}
    try:
        _encrypted("https://example.invalid/", found, b"-")
    except ValueError as error:
        raise invalid_field("keys", f"must be those of a push subscription: {error}") from error
    return found


class WebPushChannel:
    def __init__(self, vapid: VapidSigner, client: httpx.AsyncClient | None = None) -> None:
        self._vapid = vapid
        self._client = client or httpx.AsyncClient(timeout=WEBPUSH_TIMEOUT, follow_redirects=False)

    async def send(self, push: PushMessage) -> PushOutcome:
        document = {"title": push.title, "body": push.body, "link": push.link, **push.data}
        try:
            # Milliseconds of elliptic curves: off the event loop.
            body = await asyncio.to_thread(
                _encrypted, push.address, push.keys, json.dumps(document).encode()
            )
        except ValueError as error:
            return PushOutcome(PushStatus.GONE, f"invalid keys: {error}")
        headers = {
            "Authorization": self._vapid.authorization(push.address),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TTL),
            # A repeated push replaces the first.
            "Topic": f"n{push.notification_id}",
        }
        try:
            # The body is not read: it comes from a client-chosen address and may be of any size.
            async with self._client.stream(
                "POST", push.address, content=body, headers=headers
            ) as response:
                return _outcome(response)
        except httpx.HTTPError as error:
            return PushOutcome(PushStatus.AGAIN, f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        await self._client.aclose()


def _encrypted(address: str, keys: Mapping[str, str], document: bytes) -> bytes:
    """Raises `ValueError` for invalid keys."""
    # Loaded late: it imports two more HTTP clients.
    from pywebpush import WebPusher, WebPushException  # type: ignore[import-untyped]

    try:
        pusher = WebPusher({"endpoint": address, "keys": dict(keys)})
        encoded: dict[str, Any] = pusher.encode(document)
        return bytes(encoded["body"])
    except (WebPushException, TypeError, IndexError) as error:
        raise ValueError(str(error)) from error


def _outcome(response: httpx.Response) -> PushOutcome:
    status = response.status_code
    if response.is_success:
        return PushOutcome(PushStatus.SENT)
    reason = f"the push service responded {status}"
    if status in _GONE:
        return PushOutcome(PushStatus.GONE, reason)
    if status in _AGAIN or status >= 500:
        after = response.headers.get("retry-after", "")
        return PushOutcome(PushStatus.AGAIN, reason, float(after) if after.isdecimal() else None)
    return PushOutcome(PushStatus.REFUSED, reason)


#: Services refuse more than a day.
LIFE_SECONDS: Final = 12 * 3600


class VapidSigner:
    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey,
        contact: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key
        self._contact = contact
        self._clock = clock

    @property
    def public(self) -> str:
        """The `applicationServerKey` of browsers."""
        point = self._key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        return base64.urlsafe_b64encode(point).decode().rstrip("=")

    def authorization(self, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(self._clock()) + LIFE_SECONDS,
            "sub": self._contact,
        }
        return f"vapid t={jwt.encode(claims, self._key, algorithm='ES256')}, k={self.public}"


def open_vapid_key(file: Path) -> ec.EllipticCurvePrivateKey:
    """The key in the file, which is created if it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists():
        create_key_file(file, ec.generate_private_key(ec.SECP256R1()))
    key = read_key_file(file)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ConfigurationError(f"{file} must be a private key on the curve P-256")
    return key
