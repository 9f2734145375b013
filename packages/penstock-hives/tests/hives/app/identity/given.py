"""Tokens for tests: what an honest issuer signs, and what others would like to be taken for it."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from penstock_hives.identity.issuer import key_id
from penstock_hives.identity.tokens import TokenVerifier

NOW = 1_800_000_000.0
ISSUER = "https://securetoken.google.com/bees"
AUDIENCE = "bees"


def new_key() -> RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


KEY = new_key()
NAME = key_id(KEY.public_key())


class HeldKeys:
    """`Keys` that are in memory; counts how often it was asked."""

    def __init__(self, *keys: RSAPrivateKey) -> None:
        self.keys = {key_id(key.public_key()): key.public_key() for key in keys}
        self.asked = 0

    async def key(self, name: str) -> RSAPublicKey | None:
        self.asked += 1
        return self.keys.get(name)


def claims(**changed: Any) -> dict[str, Any]:
    """What Firebase says of somebody; None leaves a claim out."""
    told = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "iat": int(NOW) - 60,
        "exp": int(NOW) + 3540,
        "auth_time": int(NOW) - 60,
    }
    return {name: value for name, value in (told | changed).items() if value is not None}


def token(key: RSAPrivateKey = KEY, name: str | None = None, **changed: Any) -> str:
    named = name or key_id(key.public_key())
    return jwt.encode(claims(**changed), key, algorithm="RS256", headers={"kid": named})


def unsigned(header: dict[str, Any], **changed: Any) -> str:
    """A token with any header at all, and no signature."""
    return ".".join((_part(header), _part(claims(**changed)), ""))


def signed_with_public_key() -> str:
    """Key confusion: an HMAC whose secret is what everybody can read."""
    import hashlib
    import hmac

    secret = KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    said = ".".join((_part({"alg": "HS256", "typ": "JWT", "kid": NAME}), _part(claims())))
    mac = hmac.new(secret, said.encode(), hashlib.sha256).digest()
    return f"{said}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def verifier(*keys: RSAPrivateKey, now: float = NOW) -> TokenVerifier:
    return TokenVerifier(ISSUER, AUDIENCE, HeldKeys(*(keys or (KEY,))), lambda: now)


def _part(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
