"""Pushes to browsers: Web Push (RFC 8030), encrypted for the browser alone (RFC 8291).

Where to is a URL that a browser was given by its vendor and handed to us, so it is a stranger's
word: only addresses of known push services are taken, over TLS, and no redirection is followed.
Otherwise anyone could have this server call whatever it can reach.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tempfile
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
from penstock_hives.errors import InvalidRequest
from penstock_hives.push.models import PushMessage, PushOutcome, PushStatus

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
WEBPUSH_TIMEOUT: Final = 10.0
_GONE: Final = frozenset({404, 410})
_AGAIN: Final = frozenset({408, 425, 429})


def check_endpoint(address: str, services: Sequence[str] = SERVICES, *, local: bool = False) -> str:
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
        raise InvalidRequest("this is no address of a push service we know")
    return address


def check_keys(keys: Mapping[str, str]) -> dict[str, str]:
    """A browser's public key and secret, if a message can be encrypted for them."""
    found = {name: str(keys.get(name, "")) for name in ("p256dh", "auth")}
    try:
        _encrypted("https://example.invalid/", found, b"-")
    except ValueError as error:
        raise InvalidRequest(f"the keys are not those of a browser: {error}") from error
    return found


class WebPushChannel:
    """Sends to the browsers' services."""

    def __init__(self, vapid: VapidSigner, client: httpx.AsyncClient | None = None) -> None:
        self._vapid = vapid
        self._client = client or httpx.AsyncClient(timeout=WEBPUSH_TIMEOUT, follow_redirects=False)

    async def send(self, push: PushMessage) -> PushOutcome:
        document = {"title": push.title, "body": push.body, "link": push.link, **push.data}
        try:
            # Elliptic curves: milliseconds, which others on the loop need not wait.
            body = await asyncio.to_thread(
                _encrypted, push.address, push.keys, json.dumps(document).encode()
            )
        except ValueError as error:
            return PushOutcome(PushStatus.GONE, f"its keys are no use: {error}")
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
            return PushOutcome(PushStatus.AGAIN, f"{type(error).__name__}: {error}")

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


def _outcome(response: httpx.Response) -> PushOutcome:
    status = response.status_code
    if response.is_success:
        return PushOutcome(PushStatus.SENT)
    reason = f"the push service says {status}"
    if status in _GONE:
        return PushOutcome(PushStatus.GONE, reason)
    if status in _AGAIN or status >= 500:
        said = response.headers.get("retry-after", "")
        return PushOutcome(PushStatus.AGAIN, reason, float(said) if said.isdecimal() else None)
    return PushOutcome(PushStatus.REFUSED, reason)


# The key by which push services know us (VAPID, RFC 8292): one pair, made once, kept in a file.
#
# A browser ties its subscription to the public half, so a new key would silence every browser there
# is: it is never rotated by itself. Processes that start at the same time get the same one.

#: Services refuse more than a day.
LIFE_SECONDS: Final = 12 * 3600


class VapidSigner:
    """Signs for push services, on behalf of somebody they can write to."""

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
        """What a browser subscribes with."""
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
    """The key in a file, which is made if it is not there."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists():
        _make(file)
    try:
        key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{file} holds no private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ConfigurationError(f"{file} should hold a key on the curve P-256")
    return key


def _make(file: Path) -> None:
    octets = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".vapid-") as draft:
        draft.write(octets)
        draft.flush()
        os.fsync(draft.fileno())
        try:
            file.hardlink_to(draft.name)  # whole, and only if nobody else was quicker
        except FileExistsError:
            return
