"""The local issuer, which signs ID tokens like Firebase, and its RSA keys in a private folder.

The newest key signs, all keys verify. A key is rotated by adding one; the old one is removed when
its tokens have expired. Several processes share the folder: the first creates a key, and a process
that meets an unknown key id reads the folder again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from penstock.core.errors import ConfigurationError
from penstock_hives.identity.tokens import ALGORITHM, TokenVerifier
from penstock_hives.key_files import create_key_file, read_key_file

BITS: Final = 2048
_SUFFIX: Final = ".pem"


class SigningKeys:
    """The keys in a folder; a `KeySet`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[str, RSAPrivateKey] = {}  #: oldest first

    def open(self) -> None:
        """Read the keys; create the first one if there is none."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._read()
        if not self._keys:
            self.rotate()

    def rotate(self, keep: int = 2) -> str:
        """Add a key and remove the oldest beyond `keep`; returns the new key id."""
        files = self._files()
        number = int(files[-1].stem) + 1 if files else 1
        file = self._folder / f"{number:06}{_SUFFIX}"
        create_key_file(file, rsa.generate_private_key(65537, BITS))
        for old in self._files()[:-keep]:
            old.unlink(missing_ok=True)
        self._read()
        return self.current[0]

    @property
    def current(self) -> tuple[str, RSAPrivateKey]:
        """The id and the key that signs."""
        return next(reversed(self._keys.items()))

    async def key(self, name: str) -> RSAPublicKey | None:
        if name not in self._keys:
            await asyncio.to_thread(self._read)
        found = self._keys.get(name)
        return found.public_key() if found is not None else None

    def published(self) -> dict[str, Any]:
        """The public keys as a JWK set."""
        return {"keys": [_document(name, key) for name, key in self._keys.items()]}

    def _read(self) -> None:
        keys = (_load(file) for file in self._files())
        self._keys = {key_id(key.public_key()): key for key in keys}

    def _files(self) -> list[Path]:
        return sorted(f for f in self._folder.glob(f"*{_SUFFIX}") if f.stem.isdigit())


def key_id(key: RSAPublicKey) -> str:
    """The thumbprint of RFC 7638."""
    numbers = key.public_numbers()
    members = {"e": _base64(numbers.e), "kty": "RSA", "n": _base64(numbers.n)}
    text = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _document(name: str, key: RSAPrivateKey) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    return {
        "kty": "RSA",
        "use": "sig",
        "alg": ALGORITHM,
        "kid": name,
        "n": _base64(numbers.n),
        "e": _base64(numbers.e),
    }


def _base64(number: int) -> str:
    octets = number.to_bytes((number.bit_length() + 7) // 8)
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def _load(file: Path) -> RSAPrivateKey:
    key = read_key_file(file)
    if not isinstance(key, RSAPrivateKey):
        raise ConfigurationError(f"{file} must be an RSA private key")
    return key


LIFE_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class IssuedToken:
    token: str
    expires_in: int  #: seconds


class LocalIssuer:
    def __init__(
        self,
        name: str,
        audience: str,
        keys: SigningKeys,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.keys = keys
        self._name = name
        self._audience = audience
        self._clock = clock

    def issue(self, uid: str, signed_in_at: float | None = None) -> IssuedToken:
        """A token for a user who signed in now, or then."""
        now = int(self._clock())
        name, key = self.keys.current
        claims = {
            "iss": self._name,
            "aud": self._audience,
            "sub": uid,
            "user_id": uid,
            "iat": now,
            "exp": now + LIFE_SECONDS,
            "auth_time": now if signed_in_at is None else int(signed_in_at),
            "firebase": {"sign_in_provider": "password"},
        }
        token = jwt.encode(claims, key, algorithm=ALGORITHM, headers={"kid": name})
        return IssuedToken(token, LIFE_SECONDS)

    def verifier(self) -> TokenVerifier:
        return TokenVerifier(self._name, self._audience, self.keys, self._clock)
