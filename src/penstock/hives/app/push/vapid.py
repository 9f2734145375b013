"""The key by which push services know us (VAPID, RFC 8292): one pair, made once, kept in a file.

A browser ties its subscription to the public half, so a new key would silence every browser there
is: it is never rotated by itself. Processes that start at the same time get the same one.
"""

from __future__ import annotations

import base64
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.core.errors import ConfigurationError

#: Services refuse more than a day.
LIFE_SECONDS: Final = 12 * 3600


class Vapid:
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


def open_key(file: Path) -> ec.EllipticCurvePrivateKey:
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
