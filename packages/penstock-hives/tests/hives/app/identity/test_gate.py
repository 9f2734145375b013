"""The dashboards' sessions are sign-ins, and end with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from penstock.core.errors import AuthenticationFailed
from penstock_hives.errors import NotConfigured
from penstock_hives.identity.firebase import FirebaseSessions
from penstock_hives.identity.mail import FileMailSender
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.identity.tokens import TokenVerifier
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.section import HivesAuthenticator
from penstock_store.dashboard.pages import ProviderAuthenticator
from tests.hives.app.calling import Called
from tests.hives.app.identity.test_signing_in import LOGIN, PASSWORD, letter

ADDRESS = "127.0.0.1"
BACK = "http://127.0.0.1:8080/sign-in/returned"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def gate_of(hives: Called, firebase: FirebaseSessions | None = None) -> HivesAuthenticator:
    resources = hives.resources
    given = {"resources": resources, "services": resources.services, "firebase": firebase}
    return HivesAuthenticator(cast(DashboardContext, SimpleNamespace(**given)))


async def test_a_session_ends_with_a_new_password(hives: Called, tmp_path: Any) -> None:
    hives.issuer._mail = FileMailSender(tmp_path / "letters")
    desk, gate = hives.issuer.sign_in(hives.resources.pool), gate_of(hives)
    uid = (await desk.sign_up(LOGIN, PASSWORD)).uid
    key = await gate.sign_in(LOGIN, PASSWORD, ADDRESS)
    assert key is not None
    person = await gate.find_user(key)
    assert person is not None
    assert person.id == uid

    await desk.request_reset(LOGIN)
    await desk.reset(letter(tmp_path)[1], "ten green bottles")

    assert await gate.find_user(key) is None
    assert await gate.sign_in(LOGIN, PASSWORD, ADDRESS) is None


async def test_a_session_ends_with_a_sign_out_and_others_go_on(hives: Called) -> None:
    gate = gate_of(hives)
    await hives.issuer.sign_in(hives.resources.pool).sign_up(LOGIN, PASSWORD)
    first, second = [await gate.sign_in(LOGIN, PASSWORD, ADDRESS) for _ in range(2)]
    assert first is not None
    assert second is not None
    await gate.sign_out(first)
    assert await gate.find_user(first) is None
    assert await gate.find_user(second) is not None


@pytest.mark.parametrize("name", ["ada", LOGIN, ""])
async def test_who_is_not_known_gets_no_session(hives: Called, name: str) -> None:
    assert await gate_of(hives).sign_in(name, "wrong", ADDRESS) is None
    assert await gate_of(hives).find_user("guessed") is None


async def test_accounts_of_firebase_sign_in_to_the_dashboards(
    hives: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Firebase is played by the test; tokens are the issuer's, and verified."""
    session = await hives.issuer.sign_in(hives.resources.pool).sign_up(LOGIN, PASSWORD)
    valid, now, asked = True, 0.0, []

    async def post(client: httpx.AsyncClient, url: str, **given: Any) -> httpx.Response:
        asked.append(url.rpartition("/")[2])
        assert given["params"] == {"key": "web-key"}
        if "token" in url:
            said = {"id_token": session.id_token, "refresh_token": "another"}
            return httpx.Response(200 if valid else 400, json=said)
        right = given["json"]["password"] == PASSWORD
        said = {"idToken": session.id_token, "refreshToken": "held"}
        return httpx.Response(200 if right else 400, json=said)

    monkeypatch.setattr(httpx.AsyncClient, "post", post)
    settings = IdentitySettings(issuer="firebase", api_key="web-key")
    verifier = cast(TokenVerifier, hives.issuer)
    gate = gate_of(hives, FirebaseSessions(settings, verifier, lambda: now))

    assert await gate.sign_in(LOGIN, "wrong", ADDRESS) is None
    assert await gate.sign_in(LOGIN, PASSWORD, ADDRESS) == "held"
    person = await gate.find_user("held")
    assert person is not None
    assert person.id == session.uid
    assert not await gate.needs_administrator()
    assert asked == ["accounts:signInWithPassword"] * 2
    now = 3600.0
    assert await gate.find_user("held") is not None  # renewed
    assert asked[2:] == ["token"]
    now, valid = 7200.0, False
    assert await gate.find_user("held") is None  # disabled at Firebase


async def test_accounts_of_a_provider_sign_in_through_firebase(
    hives: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await hives.issuer.sign_in(hives.resources.pool).sign_up(LOGIN, PASSWORD)
    said: dict[str, Any] = {}

    async def post(client: httpx.AsyncClient, url: str, **given: Any) -> httpx.Response:
        return httpx.Response(200 if said else 400, json=said)

    monkeypatch.setattr(httpx.AsyncClient, "post", post)
    settings = IdentitySettings(issuer="firebase", api_key="web-key", providers=["google.com"])
    gate = gate_of(hives, FirebaseSessions(settings, cast(TokenVerifier, hives.issuer)))
    assert isinstance(gate, ProviderAuthenticator)
    assert gate.providers() == {"google.com": "Google"}

    with pytest.raises(NotConfigured, match="not enabled"):
        await gate.begin("apple.com", BACK)
    with pytest.raises(NotConfigured, match="authorised redirect URI"):
        await gate.begin("google.com", BACK)
    said = {"authUri": "https://accounts.google.com/x", "sessionId": "s"}
    assert await gate.begin("google.com", BACK) == ("https://accounts.google.com/x", "s")
    said = {"needConfirmation": True}  # the address has another way to sign in
    assert await gate.finish("google.com", "s", f"{BACK}?code=c") is None
    said = {"idToken": session.id_token, "refreshToken": "held"}
    assert await gate.finish("google.com", "s", f"{BACK}?code=c") == "held"
    person = await gate.find_user("held")
    assert person is not None
    assert person.id == session.uid
    said = {"idToken": session.id_token + "x", "refreshToken": "forged"}
    with pytest.raises(AuthenticationFailed):
        await gate.finish("google.com", "s", f"{BACK}?code=c")


async def test_the_local_issuer_has_no_providers(hives: Called) -> None:
    gate = gate_of(hives)
    assert gate.providers() == {}
    with pytest.raises(NotConfigured):
        await gate.begin("google.com", BACK)
