"""Devices and the inbox over HTTP."""

from __future__ import annotations

import pytest

from penstock_hives.people.permissions import UserRole
from penstock_hives.push.models import Notification
from penstock_hives.push.repository import Outbox
from tests.hives.app.calling import Called
from tests.hives.app.push.services import Browser

pytestmark = pytest.mark.asyncio(loop_scope="module")

BROWSER = {
    "kind": "webpush",
    "address": "https://updates.push.services.mozilla.com/wpush/v2/abc",
    "keys": Browser().keys,
}


async def test_a_browser_is_registered_and_forgotten(hives: Called) -> None:
    uid = await hives.enter(UserRole.USER)
    made = await hives.call("POST", "/v1/push/devices", uid, json=BROWSER)
    assert made.status_code == 201
    assert "address" not in made.json()  # who knows it could push
    devices = (await hives.call("GET", "/v1/push/devices", uid)).json()
    assert [each["kind"] for each in devices] == ["webpush"]
    path = f"/v1/push/devices/{made.json()['id']}"
    assert (await hives.call("DELETE", path, uid)).status_code == 204
    assert (await hives.call("DELETE", path, uid)).status_code == 404


async def test_a_device_that_changes_hands_is_the_new_ones(hives: Called) -> None:
    first, second = await hives.enter(UserRole.USER), await hives.enter(UserRole.OPERATOR)
    for uid in (first, second):
        await hives.call("POST", "/v1/push/devices", uid, json=BROWSER)
    assert (await hives.call("GET", "/v1/push/devices", first)).json() == []
    assert len((await hives.call("GET", "/v1/push/devices", second)).json()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"address": "https://169.254.169.254/latest/meta-data"},
        {"keys": {}},
        {"kind": "pigeon"},
        {"kind": "fcm", "address": "a token"},
    ],
)
async def test_what_cannot_be_pushed_to_is_refused(hives: Called, change: dict[str, str]) -> None:
    uid = await hives.enter(UserRole.USER)
    made = await hives.call("POST", "/v1/push/devices", uid, json={**BROWSER, **change})
    assert made.status_code == 422


async def test_one_person_has_so_many_devices(hives: Called) -> None:
    uid = await hives.enter(UserRole.USER)
    statuses = [
        (
            await hives.call(
                "POST", "/v1/push/devices", uid, json={"kind": "fcm", "address": f"phone-{number}"}
            )
        ).status_code
        for number in range(21)
    ]
    assert statuses == [201] * 20 + [409]


async def test_the_key_browsers_subscribe_with_is_always_the_same(hives: Called) -> None:
    first, again = [(await hives.call("GET", "/v1/push/key")).json()["key"] for _ in range(2)]
    assert first == again
    assert len(first) == 87


async def told(hives: Called, uid: str | None, count: int) -> None:
    row = await hives.resources.pool.row("SELECT id FROM app_user WHERE firebase_uid = %s", (uid,))
    assert row is not None
    notes = [
        Notification(row["id"], "system", f"Note {n}", "Hello", f"{uid}:{n}") for n in range(count)
    ]
    async with hives.resources.pool.transaction() as connection:
        await Outbox(connection).add(notes)


async def test_the_inbox_has_ones_own_notes_page_by_page(hives: Called) -> None:
    uid, other = await hives.enter(UserRole.USER), await hives.enter(UserRole.OPERATOR)
    await told(hives, uid, 5)
    await told(hives, other, 1)
    titles: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await hives.call("GET", "/v1/inbox", uid, params={"limit": 2, **cursor})).json()
        titles += [note["title"] for note in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert titles == [f"Note {number}" for number in (4, 3, 2, 1, 0)]


async def test_what_was_read_is_unread_no_more(hives: Called) -> None:
    uid, other = await hives.enter(UserRole.USER), await hives.enter(UserRole.OPERATOR)
    await told(hives, uid, 3)

    async def unread() -> list[int]:
        page = await hives.call("GET", "/v1/inbox", uid, params={"unread": True})
        return [note["id"] for note in page.json()["items"]]

    newest, *rest = await unread()
    path = f"/v1/inbox/{newest}/read"
    assert (await hives.call("POST", path, other)).status_code == 404
    assert (await hives.call("POST", path, uid)).status_code == 204
    assert await unread() == rest
    assert (await hives.call("POST", "/v1/inbox/read", uid)).status_code == 204
    assert await unread() == []
