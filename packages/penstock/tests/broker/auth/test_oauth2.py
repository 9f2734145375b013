"""Tokens: which are accepted, and what they say."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from penstock.broker.auth import jwks
from penstock.broker.auth.backend import AuthChain
from penstock.broker.auth.oauth2 import OAuth2Backend
from penstock.broker.user import User
from penstock.core.config import BrokerSettings, OAuth2Settings
from penstock.core.errors import AuthenticationFailed
from penstock.core.settings_model import SettingsError
from tests.broker.auth.issuer import RESOURCE, Issuer, private_key, public_jwk


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def backend_of(issuer: Issuer, **settings: Any) -> OAuth2Backend:
    known = {"resource_server_id": RESOURCE, "issuer": issuer.url, **settings}
    return OAuth2Backend(OAuth2Settings(**known), fetch=issuer.fetch)


async def login(backend: OAuth2Backend, token: str) -> User:
    return await backend.authenticate("", token.encode(), address="127.0.0.1")


async def refusal(backend: OAuth2Backend, token: str) -> str:
    with pytest.raises(AuthenticationFailed) as refused:
        await login(backend, token)
    return str(refused.value)


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"])
async def test_a_token_is_a_login(issuer: Issuer, algorithm: str) -> None:
    issuer.rotate("key", algorithm)
    user = await login(backend_of(issuer), issuer.token(scope="penstock.tag:management other.x"))

    assert (user.name, user.tags, user.origin) == ("ada", ("management",), "oauth2")
    assert user.expires is not None
    assert user.expires > time.time()


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": float("inf")}, "invalid token"),
        ({"exp": []}, "invalid token"),
        ({"nbf": 1e12}, "not yet valid"),
        ({"iat": 1e12}, "not yet valid"),
        ({"iss": "https://elsewhere.example"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": [1, None]}, "audience"),
        ({"sub": None}, "user name"),
        ({"sub": 7}, "user name"),
        ({"sub": "x" * 300}, "user name"),
    ],
)
async def test_claims_are_checked(issuer: Issuer, claims: dict[str, Any], reason: str) -> None:
    header = {"kid": issuer.key_id}
    payload = json.dumps(issuer.claims(**claims)).encode()
    token = jwt.api_jws.encode(payload, issuer.key, issuer.algorithm, headers=header)

    assert reason in (await refusal(backend_of(issuer), token)).lower()


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "HS512", "", "XX", 1, None])
async def test_a_token_without_a_public_key_signature_is_refused(
    issuer: Issuer, algorithm: object
) -> None:
    backend = backend_of(issuer)
    await login(backend, issuer.token())
    header = {"alg": algorithm, "typ": "JWT", "kid": issuer.key_id}

    assert await refusal(backend, unsigned(header, issuer.claims()))


async def test_a_public_key_is_no_shared_secret(issuer: Issuer) -> None:
    issuer.rotate("key", "RS256")
    public = issuer.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for algorithm in ("HS256", "RS256"):  # honest about it, and not
        header = {"alg": algorithm, "kid": "key"}
        signed = unsigned(header, issuer.claims()).rpartition(".")[0]
        digest = hmac.new(public, signed.encode(), hashlib.sha256).digest()
        token = f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

        assert await refusal(backend_of(issuer), token)


async def test_a_published_shared_secret_is_not_a_key(issuer: Issuer) -> None:
    secret = b"k" * 32
    issuer.keys = [{"kty": "oct", "kid": "key-1", "k": base64.urlsafe_b64encode(secret).decode()}]
    token = jwt.encode(issuer.claims(), secret, "HS256", headers={"kid": "key-1"})

    assert "HS256" in await refusal(backend_of(issuer), token)


async def test_the_signature_is_checked(issuer: Issuer) -> None:
    token = issuer.token()
    stranger = jwt.encode(
        issuer.claims(), private_key("ES256", 1), "ES256", headers={"kid": issuer.key_id}
    )
    header, claims, signature = token.split(".")
    changed = unsigned({}, issuer.claims(sub="root")).split(".")[1]

    assert "ignature" in await refusal(backend_of(issuer), stranger)
    assert "ignature" in await refusal(backend_of(issuer), f"{header}.{changed}.{signature}")
    assert await refusal(backend_of(issuer), f"{header}.{claims}.")


async def test_only_configured_algorithms_are_accepted(issuer: Issuer) -> None:
    assert "ES256" in await refusal(backend_of(issuer, algorithms=["RS256"]), issuer.token())


async def test_a_key_for_another_use_or_algorithm_is_not_taken(issuer: Issuer) -> None:
    issuer.keys = [public_jwk(issuer.key, issuer.key_id, use="enc")]
    assert "no key" in await refusal(backend_of(issuer), issuer.token())
    issuer.keys = [public_jwk(issuer.key, issuer.key_id, alg="ES384")]
    assert "not for ES256" in await refusal(backend_of(issuer), issuer.token())


@pytest.mark.parametrize("password", ["", "secret", "a.b", "a.b.c", "..", "a.b.c.d", "é.é.é"])
async def test_what_is_not_a_token_is_refused(issuer: Issuer, password: str) -> None:
    assert await refusal(backend_of(issuer), password)


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    token = issuer.token(exp=time.time() - 10, nbf=time.time() + 10)

    assert (await login(backend_of(issuer), token)).name == "ada"
    assert await refusal(backend_of(issuer, clock_skew=1), token)


async def test_keys_are_fetched_once_and_shared(issuer: Issuer) -> None:
    backend = backend_of(issuer)
    await asyncio.gather(*(login(backend, issuer.token()) for _ in range(20)))

    assert issuer.fetched == [
        f"{issuer.url}/.well-known/openid-configuration",
        f"{issuer.url}/keys",
    ]


async def test_the_address_of_the_keys_can_be_given(issuer: Issuer) -> None:
    backend = backend_of(issuer, jwks_url=f"{issuer.url}/keys")
    await login(backend, issuer.token())

    assert issuer.fetched == [f"{issuer.url}/keys"]


async def test_a_new_key_of_the_issuer_is_found(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_of(issuer)
    await login(backend, issuer.token())
    before = issuer.token()
    issuer.rotate("key-2", number=2)
    monkeypatch.setattr(jwks, "MIN_FETCH_SECONDS", 0.0)

    assert (await login(backend, issuer.token())).name == "ada"
    assert "no key 'key-1'" in await refusal(backend, before)


async def test_unknown_keys_do_not_flood_the_issuer(issuer: Issuer) -> None:
    backend = backend_of(issuer)
    await login(backend, issuer.token())
    requests = len(issuer.fetched)
    for number in range(10):
        header = {"kid": f"unknown-{number}"}
        assert await refusal(backend, jwt.encode({}, issuer.key, "ES256", headers=header))

    assert len(issuer.fetched) == requests


async def test_known_keys_remain_while_the_issuer_is_down(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "MIN_FETCH_SECONDS", 0.0)
    backend = backend_of(issuer, keys_lifetime=1e-9)
    await login(backend, issuer.token())
    issuer.down = True

    assert (await login(backend, issuer.token())).name == "ada"
    assert "no key" in await refusal(backend_of(issuer), issuer.token())


async def test_metadata_of_another_issuer_are_not_used(issuer: Issuer) -> None:
    backend = OAuth2Backend(
        OAuth2Settings(resource_server_id=RESOURCE, issuer=issuer.url),
        fetch=lambda url: {"issuer": "https://evil.example", "jwks_uri": f"{issuer.url}/keys"},
    )
    assert "no key" in await refusal(backend, issuer.token())


@pytest.mark.parametrize(
    ("settings", "claims", "tags"),
    [
        ({}, {"scope": ["penstock.tag:a", "penstock.tag:b", 5]}, ("a", "b")),
        ({"scope_prefix": ""}, {"scope": "tag:a"}, ("a",)),
        ({"scope_prefix": "mq/"}, {"scope": "mq/tag:a penstock.tag:b"}, ("a",)),
        (
            {"scope_claims": ["scope", "roles"]},
            {"scope": None, "roles": ["penstock.tag:a"]},
            ("a",),
        ),
        (
            {"scope_claims": ["realm_access.roles"]},
            {"realm_access": {"roles": ["penstock.tag:a"]}},
            ("a",),
        ),
        (
            {"scope_claims": ["extra"]},
            {"extra": {RESOURCE: ["penstock.tag:a"], "x": ["y"]}},
            ("a",),
        ),
        (
            {"scope_aliases": {"ops": ["penstock.tag:a", "penstock.tag:b"]}},
            {"scope": "ops"},
            ("a", "b"),
        ),
        ({"scope_claims": ["nested.claim"]}, {"nested": "text"}, ()),
    ],
)
async def test_where_scopes_are(
    issuer: Issuer, settings: dict[str, Any], claims: dict[str, Any], tags: tuple[str, ...]
) -> None:
    user = await login(backend_of(issuer, **settings), issuer.token(**claims))

    assert user.tags == tags


async def test_the_claims_with_the_user_name_can_be_chosen(issuer: Issuer) -> None:
    backend = backend_of(issuer, username_claims=["preferred_username", "sub"])

    assert (await login(backend, issuer.token(preferred_username="lovelace"))).name == "lovelace"
    assert (await login(backend, issuer.token())).name == "ada"


async def test_the_audience_can_be_ignored_or_a_text(issuer: Issuer) -> None:
    assert (
        await login(backend_of(issuer, verify_audience=False), issuer.token(aud=None))
    ).name == "ada"
    assert (await login(backend_of(issuer), issuer.token(aud="other penstock"))).name == "ada"


async def test_backends_are_asked_in_order(issuer: Issuer) -> None:
    class Fixed:
        def __init__(self, name: str, password: bytes) -> None:
            self.name = name
            self._password = password

        async def authenticate(self, name: str, password: bytes, *, address: str) -> User:
            if password != self._password:
                raise AuthenticationFailed("wrong")
            return User(name, origin=self.name)

    chain = AuthChain([backend_of(issuer), Fixed("one", b"1"), Fixed("two", b"2")])
    for password, origin in ((issuer.token(), "oauth2"), ("1", "one"), ("2", "two")):
        user = await chain.authenticate("bob", password.encode(), address="127.0.0.1")
        assert user.origin == origin
    with pytest.raises(AuthenticationFailed, match=r"oauth2: .*; one: wrong; two: wrong"):
        await chain.authenticate("bob", b"3", address="127.0.0.1")


@pytest.mark.parametrize(
    "settings",
    [
        {"auth_backends": ["oauth2"]},
        {"auth_backends": ["oauth2"], "oauth2": {"issuer": "https://a.example"}},
        {"auth_backends": []},
        {"auth_backends": ["internal", "internal"]},
        {"auth_backends": ["kerberos"]},
        {"oauth2": {"issuer": "http://a.example"}},
        {"oauth2": {"issuer": "http:///x"}},
        {"oauth2": {"jwks_url": "file:///etc/passwd"}},
        {"oauth2": {"algorithms": ["HS256"]}},
        {"oauth2": {"algorithms": ["none"]}},
    ],
)
def test_settings_that_cannot_be_safe_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        BrokerSettings(**settings)
