"""The dashboards' sessions are sign-ins, and end with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock_hives.identity.mail import FileMailSender
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.section import HivesAuthenticator
from tests.hives.app.calling import Called
from tests.hives.app.identity.test_signing_in import LOGIN, PASSWORD, letter

ADDRESS = "127.0.0.1"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def gate_of(hives: Called) -> HivesAuthenticator:
    resources = hives.resources
    return HivesAuthenticator(
        cast(DashboardContext, SimpleNamespace(resources=resources, services=resources.services))
    )


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
