"""Users over HTTP: profiles, keys, activity, operators, leaving."""

from __future__ import annotations

from datetime import timedelta

from tests.hives.app.world import NOON, World


async def test_who_signs_in_first_gets_a_profile_with_nothing_in_it(world: World) -> None:
    profile = await world.read("/me", "first-seen")

    assert (profile["role"], profile["plan"]) == ("user", "free")
    assert profile["nickname"] is None
    assert set(profile) & {"email", "phone", "firebase_uid"} == set()


async def test_a_profile_is_edited_by_field(world: World) -> None:
    who = await world.user()
    await world.patch("/me", who, {"nickname": "bumble", "age_band": "25_34"})

    answer = await world.patch("/me", who, {"time_zone": "Europe/Berlin", "age_band": None})

    assert answer.json()["nickname"] == "bumble"
    assert answer.json()["time_zone"] == "Europe/Berlin"
    assert answer.json()["age_band"] is None


async def test_a_profile_changed_meanwhile_is_not_overwritten(world: World) -> None:
    who = await world.user()
    seen = (await world.get("/me", who)).headers["etag"]
    await world.patch("/me", who, {"nickname": "one"})

    assert (await world.patch("/me", who, {"nickname": "two"}, seen)).status_code == 412


async def test_a_profile_has_the_plan_and_the_features_of_all_providers_together(
    world: World,
) -> None:
    who = await world.user()
    world.subscribe("basic", user=await world.number(who))
    business = await world.business(plan="business")
    await world.join(business.account, business.admin, who)

    profile = await world.read("/me", who)

    assert profile["plan"] == "business"
    assert {"alerts", "dashboard", "live_figures"} <= set(profile["features"])
    assert profile["memberships"][0]["account_id"] == business.account


async def test_an_export_has_what_is_stored_of_its_user_and_of_nobody_else(world: World) -> None:
    business = await world.business()
    who, other = await world.user(), await world.user()
    for each in (who, other):
        await world.put(f"/me/favourites/{business.hive}", each)
        words = {"type": "feedback", "hive_id": business.hive, "content": f"I am {each}"}
        await world.make("/messages", each, words)
    answer = await world.get("/me/export", who)

    assert answer.headers["content-disposition"].startswith("attachment")
    told = answer.json()
    assert told["profile"]["id"] == await world.number(who)
    assert [each["hive_id"] for each in told["places"]] == [business.hive]
    assert [each["content"] for each in told["messages"]] == [f"I am {who}"]
    assert other not in answer.text


async def test_leaving_erases_what_was_said_and_done(world: World) -> None:
    business = await world.business()
    who = await world.user()
    number = await world.number(who)
    feedback = {"type": "feedback", "content": "Loud.", "hive_id": business.hive}
    await world.make("/messages", who, feedback)
    await world.put(f"/me/favourites/{business.hive}", who)
    await world.make("/events", who, {"session_id": "s", "events": [{"action": "view"}]})

    assert (await world.delete("/me", who)).status_code == 204

    for table in ("user_message", "user_hive", "user_analytics"):
        assert world.rows(f"SELECT FROM {table} WHERE user_id = %s", number) == []
    assert (await world.read("/me", who))["id"] != number  # the same token is somebody new


async def test_the_last_admin_of_an_account_cannot_leave(world: World) -> None:
    business = await world.business()

    assert (await world.delete("/me", business.admin)).status_code == 409


async def test_a_key_acts_as_who_made_it_until_it_is_revoked(world: World) -> None:
    who = await world.user()
    made = await world.make("/me/keys", who, {"name": "the till"})
    shown = {"X-API-Key": made["secret"]}

    assert (await world.read("/me", headers=shown))["id"] == await world.number(who)
    assert "secret" not in (await world.read("/me/keys", who))[0]
    await world.delete(f"/me/keys/{made['key']['id']}", who)
    assert (await world.get("/me", headers=shown)).status_code == 401


async def test_a_key_expires(world: World) -> None:
    who = await world.user()
    until = (NOON + timedelta(hours=1)).isoformat()
    made = await world.make("/me/keys", who, {"name": "for an hour", "expires_at": until})
    world.clock.now = NOON + timedelta(hours=2)

    answer = await world.get("/me", headers={"X-API-Key": made["secret"]})

    assert answer.status_code == 401


async def test_a_token_that_does_not_hold_is_refused_even_where_none_is_needed(
    world: World,
) -> None:
    assert (await world.get("/hives", "forged.token")).status_code == 401
    assert (await world.get("/hives", headers={"Authorization": "Basic eA=="})).status_code == 401
    assert (await world.get("/hives", headers={"X-API-Key": "hive_guess"})).status_code == 401


async def test_activity_sums_up_what_somebody_looked_at_and_for(world: World) -> None:
    who = await world.user()
    events = [
        *({"action": "view", "page_identifier": "/hives/1", "hive_id": 1} for _ in range(2)),
        {"action": "view", "page_identifier": "/deals"},
        {"action": "search", "query": "Coffee"},
        {"action": "favourite", "hive_id": 1},
    ]

    assert await world.make("/events", who, {"session_id": "s", "events": events}) == {
        "recorded": 5
    }

    mine = await world.read("/me/activity", who)
    assert mine["pages"][0] == {"name": "/hives/1", "count": 2}
    assert mine["searches"] == [{"name": "coffee", "count": 1}]
    assert mine["favourites"] == [{"name": "1", "count": 1}]


async def test_events_without_signing_in_are_nobodys_and_in_their_month(world: World) -> None:
    event = {"action": "view", "page_identifier": "/nobodys", "at": NOON.isoformat()}

    await world.make("/events", None, {"session_id": "s", "events": [event]})

    [row] = world.rows(
        "SELECT user_id, tableoid::regclass::text AS part FROM user_analytics "
        "WHERE page_identifier = '/nobodys'"
    )
    assert row == {"user_id": None, "part": "user_analytics_202603"}


async def test_operators_see_what_everybody_looks_for(world: World) -> None:
    operator = await world.user(role="operator")
    event = {"action": "search", "query": "honey"}
    await world.make("/events", None, {"session_id": "s", "events": [event]})

    assert "honey" in [each["name"] for each in (await world.read("/usage", operator))["searches"]]
    assert (await world.get("/usage", await world.user())).status_code == 403


async def test_an_admin_appoints_operators_and_not_themselves(world: World) -> None:
    admin, who = await world.user(role="admin"), await world.user()
    path = f"/users/{await world.number(who)}/role"

    assert (await world.put(path, who, {"role": "admin"})).status_code == 403
    assert (await world.put(path, admin, {"role": "operator"})).status_code == 204
    assert (await world.read("/me", who))["role"] == "operator"
    own = f"/users/{await world.number(admin)}/role"
    assert (await world.put(own, admin, {"role": "user"})).status_code == 409


async def test_operators_list_users_a_page_at_a_time(world: World) -> None:
    operator = await world.user(role="operator")
    await world.user()

    first = await world.read("/users?limit=1", operator)
    second = await world.read(f"/users?limit=1&cursor={first['next']}", operator)

    assert len(first["items"]) == 1
    assert second["items"][0]["id"] > first["items"][0]["id"]


async def test_changes_others_rely_on_are_written_down(world: World) -> None:
    business = await world.business()
    await world.patch(f"/hives/{business.hive}", business.admin, {"capacity": 9})

    entries = (await world.read(f"/audit?account={business.account}", business.admin))["items"]

    assert entries[0]["action"] == "edit"
    assert entries[0]["details"] == {"fields": ["capacity"]}
    assert (await world.get("/audit", business.admin)).status_code == 403


async def test_everybody_may_know_who_may_do_what(world: World) -> None:
    roles = {each["role"]: each for each in await world.read("/roles")}

    assert "deals.edit" in roles["account_member"]["permissions"]
    assert "account.members" not in roles["account_member"]["permissions"]
    assert roles["operator"]["everywhere"] is True
