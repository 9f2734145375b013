"""Sign-in at a token issuer: codes, verifiers, client secrets, and issuers that fail."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from penstock.core.config import BrokerSettings, OAuth2Settings
from penstock.server.broker import Broker
from tests.broker.auth.issuer import CLIENT, RESOURCE, Issuer, serve

VERIFIER = "a-verifier-of-43-characters-or-more-0123456789"
CHALLENGE = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
)
BACK = "http://console.example/"


def issue_code(issuer: Issuer) -> str:
    query = {"response_type": "code", "client_id": CLIENT, "redirect_uri": BACK, "state": "s"}
    back = issuer.allow(query | {"code_challenge": CHALLENGE, "code_challenge_method": "S256"})
    return str(httpx.URL(back).params["code"])


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    issuer.secret = "s&cret"
    with serve(issuer):
        yield issuer


@pytest.fixture
async def api(issuer: Issuer, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    oauth2 = OAuth2Settings(
        resource_server_id=RESOURCE, issuer=issuer.url, client_id=CLIENT, client_secret="s&cret"
    )
    settings = BrokerSettings(
        listen=["http://127.0.0.1:0"], auth_backends=["oauth2", "internal"], oauth2=oauth2
    )
    async with Broker(settings, data=tmp_path) as broker:
        async with httpx.AsyncClient(base_url=broker.addresses[0], timeout=60) as client:
            yield client


async def test_a_code_and_its_verifier_are_exchanged_once(
    api: httpx.AsyncClient, issuer: Issuer
) -> None:
    issuer.secret = "s%26cret"  # as RFC 6749 encodes it
    body = {"code": issue_code(issuer), "code_verifier": VERIFIER, "redirect_uri": BACK}
    answer = await api.post("/api/auth/token", json=body)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json().keys() == {"access_token", "refresh_token"}
    bearer = {"authorization": f"Bearer {answer.json()['access_token']}"}
    assert (await api.get("/api/whoami", headers=bearer)).json()["tags"] == ["administrator"]
    again = await api.post("/api/auth/token", json=body)
    assert again.status_code == 401
    assert again.json()["reason"].endswith("the code is not valid")


async def test_another_verifier_and_a_wrong_secret_are_refused(
    api: httpx.AsyncClient, issuer: Issuer
) -> None:
    body = {"code": issue_code(issuer), "code_verifier": "stolen", "redirect_uri": BACK}
    answer = await api.post("/api/auth/token", json=body)
    assert (answer.status_code, answer.json()["reason"]) == (401, f"{issuer.url}: invalid_client")
    issuer.secret = "s%26cret"
    answer = await api.post("/api/auth/token", json=body)
    assert answer.json()["reason"] == f"{issuer.url}: the code is not valid"
    answer = await api.post("/api/auth/token", json={"code": "c"})
    assert answer.json()["reason"] == "key_missing: code_verifier, redirect_uri"


async def test_requests_to_the_issuer_are_limited(api: httpx.AsyncClient, issuer: Issuer) -> None:
    issuer.down = True
    answers = await asyncio.gather(*(api.get("/api/auth/provider") for _ in range(12)))
    reasons = {answer.json()["reason"] for answer in answers}
    assert all("does not answer" in each or "too many sign-ins" in each for each in reasons)
    issuer.down = False
    answer = await api.get("/api/auth/provider")
    assert answer.json() == {"authorization_endpoint": f"{issuer.url}/authorize"}


async def test_without_a_client_id_there_is_no_sign_in(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path) as broker, httpx.AsyncClient() as client:
        answer = await client.get(f"{broker.addresses[0]}/api/auth/provider")
    assert answer.status_code == 404
    assert "broker.oauth2.client_id" in answer.json()["reason"]


def test_a_client_id_needs_an_issuer() -> None:
    with pytest.raises(ValueError, match="client_id needs issuer"):
        OAuth2Settings(client_id="console", jwks_url="https://id.example/keys").check()
