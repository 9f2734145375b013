"""The local issuer's keys: RSA, in a folder only its owner may read, one file each.

The newest key signs, all of them verify: so a key is rotated by adding one, and dropped when no
token it signed can still be valid. Several processes share the folder. The first to come makes the
first key, whichever that is, and one that meets a name it does not know looks into the folder
again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from penstock.core.errors import ConfigurationError
from penstock_hives.identity.tokens import ALGORITHM, TokenVerifier

BITS: Final = 2048
_SUFFIX: Final = ".pem"


class SigningKeys:
    """The keys in a folder; keeps `penstock_hives.identity.tokens.KeySet`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[str, RSAPrivateKey] = {}  #: oldest first

    def open(self) -> None:
        """Read what there is; make the first one if there is none."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._read()
        if not self._keys:
            self.rotate()

    def rotate(self, keep: int = 2) -> str:
        """Sign with a new key from now on, and keep so many in all. Its name."""
        files = self._files()
        number = int(files[-1].stem) + 1 if files else 1
        _write_new(self._folder / f"{number:06}{_SUFFIX}")
        for old in self._files()[:-keep]:
            old.unlink(missing_ok=True)
        self._read()
        return self.current[0]

    @property
    def current(self) -> tuple[str, RSAPrivateKey]:
        """The key that signs, and its name."""
        return next(reversed(self._keys.items()))

    async def key(self, name: str) -> RSAPublicKey | None:
        if name not in self._keys:
            await asyncio.to_thread(self._read)
        found = self._keys.get(name)
        return found.public_key() if found is not None else None

    def published(self) -> dict[str, Any]:
        """The public halves as a JWK set."""
        return {"keys": [_document(name, key) for name, key in self._keys.items()]}

    def _read(self) -> None:
        keys = (_load(file) for file in self._files())
        self._keys = {key_id(key.public_key()): key for key in keys}

    def _files(self) -> list[Path]:
        return sorted(f for f in self._folder.glob(f"*{_SUFFIX}") if f.stem.isdigit())


def key_id(key: RSAPublicKey) -> str:
    """A key's thumbprint (RFC 7638): the same wherever it is computed."""
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
    try:
        key = serialization.load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{file} holds no private key: {error}") from error
    if not isinstance(key, RSAPrivateKey):
        raise ConfigurationError(f"{file} should hold an RSA key")
    return key


def _write_new(file: Path) -> None:
    """A new key whole or not at all; one that another process has just put there stays."""
    key = rsa.generate_private_key(65537, BITS)
    octets = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # Made readable to its owner alone, and linked to its name: a link does not overwrite.
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".key-") as draft:
        draft.write(octets)
        draft.flush()
        os.fsync(draft.fileno())
        try:
            file.hardlink_to(draft.name)
        except FileExistsError:
            return


# The local issuer: signs the ID tokens that Firebase would.
#
# Same claims, same algorithm, same life of an hour, with keys from `issuer.py`. A verifier is told
# apart from Firebase's by its issuer and keys alone, so what is tested here is what runs there.

LIFE_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class IssuedToken:
    token: str
    expires_in: int  #: seconds


class LocalIssuer:
    """Signs for one audience, under one name."""

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
        """A token for somebody who has just proved who they are, or had done so then."""
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
