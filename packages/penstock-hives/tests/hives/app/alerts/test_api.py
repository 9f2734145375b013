"""One's alerts over HTTP, in the content language."""

from __future__ import annotations

import pytest

from penstock_hives.people.permissions import UserRole
from tests.hives.app.alerts.given import define, settle_town
from tests.hives.app.calling import Called

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_alert_shows_what_it_waits_for(hives: Called) -> None:
    await settle_town(hives.resources.pool)
    await define(hives.resources.pool, 1)
    await define(hives.resources.pool, 2, kind="deal_new", threshold=None, unit=None)
    await define(hives.resources.pool, 3, user=2)
    alerts = (await hives.call("GET", "/v1/alerts", "ada")).json()
    assert [(each["id"], each["subscriptions"], each["armed"]) for each in alerts] == [
        (1, ["[class,eq,occupancy],[hive,=,1],[percent,>=,80.0]"], True),
        (2, ['[class,eq,deal],[event,eq,"new"],[hive,=,1]'], True),
    ]


async def test_an_alert_is_tried_out(hives: Called) -> None:
    await settle_town(hives.resources.pool)
    await define(hives.resources.pool, 1)
    assert (await hives.call("POST", "/v1/alerts/1/test", "ada")).status_code == 204
    (note,) = (await hives.call("GET", "/v1/inbox", "ada")).json()["items"]
    assert note["title"] == "Test notification"
    assert (await hives.call("POST", "/v1/alerts/1/test", "bob")).status_code == 404
    again = [(await hives.call("POST", "/v1/alerts/1/test", "ada")).status_code for _ in range(5)]
    assert again == [204] * 4 + [429]


async def test_who_has_none_sees_none(hives: Called) -> None:
    uid = await hives.enter(UserRole.USER)
    assert (await hives.call("GET", "/v1/alerts", uid)).json() == []
