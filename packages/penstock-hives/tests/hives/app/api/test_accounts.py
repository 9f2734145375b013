"""Accounts, members, plans and what was paid, over HTTP."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from penstock_hives.people.repository import DAILY_LIMIT, DAILY_LIMITS
from penstock_hives.people.service import MAX_ACCOUNTS
from tests.hives.app.world import NOON, Business, World, deal, png


async def test_anybody_who_signs_in_may_open_an_account_and_is_its_admin(world: World) -> None:
    who = await world.user()

    account = await world.make("/accounts", who, {"name": "Ada's", "time_zone": "Europe/Berlin"})

    assert (account["plan"], account["status"], account["hives"]) == ("business_free", "active", 0)
    profile = await world.read("/me", who)
    assert profile["role"] == "account_admin"
    assert profile["memberships"] == [
        {"account_id": account["id"], "account": "Ada's", "role": "account_admin"}
    ]


async def test_an_account_is_edited_by_its_admins(world: World) -> None:
    business = await world.business()
    path = f"/accounts/{business.account}"

    assert (await world.patch(path, business.member, {"name": "No"})).status_code == 403
    answer = await world.patch(path, business.admin, {"name": "Ada's Ltd"})

    assert answer.json()["name"] == "Ada's Ltd"
    [mine] = (await world.read("/accounts", business.member))["items"]
    assert mine["name"] == "Ada's Ltd"


async def test_accounts_of_others_are_closed_to_strangers(world: World) -> None:
    business, stranger = await world.business(), await world.user()
    other = await world.business()

    assert (await world.get(f"/accounts/{business.account}", stranger)).status_code == 403
    assert (await world.get(f"/accounts/{business.account}", other.admin)).status_code == 403
    assert (await world.get(f"/accounts/{business.account}/members")).status_code == 401


async def test_an_account_keeps_an_admin(world: World) -> None:
    business = await world.business()
    admin, member = await world.number(business.admin), await world.number(business.member)
    members = f"/accounts/{business.account}/members"

    demoted = await world.put(f"{members}/{admin}", business.admin, {"role": "account_member"})
    dismissed = await world.delete(f"{members}/{admin}", business.admin)
    assert (demoted.status_code, dismissed.status_code) == (409, 409)

    await world.put(f"{members}/{member}", business.admin, {"role": "account_admin"})
    assert (await world.delete(f"{members}/{admin}", business.admin)).status_code == 204
    assert (await world.read("/me", business.admin))["role"] == "user"


async def test_members_may_go_and_not_send_others_away(world: World) -> None:
    business = await world.business()
    members = f"/accounts/{business.account}/members"
    admin, member = await world.number(business.admin), await world.number(business.member)

    assert (await world.delete(f"{members}/{admin}", business.member)).status_code == 403
    assert (await world.delete(f"{members}/{member}", business.member)).status_code == 204
    left = await world.read(members, business.admin)
    assert [each["user_id"] for each in left] == [admin]


async def test_nobody_is_a_member_without_their_consent(world: World) -> None:
    business, who = await world.business(), await world.user()
    number = await world.number(who)
    account = f"/accounts/{business.account}"

    for person in (number, 999_999_999):
        added = await world.put(f"{account}/members/{person}", business.admin, {})
        assert added.status_code == 404
        assert "invite" in added.json()["detail"]
    invited = await world.put(f"{account}/invitations/{number}", business.admin, {})

    assert invited.status_code == 200
    assert "nickname" not in invited.json()
    assert (await world.read("/me", who))["memberships"] == []
    assert (await world.get(account, who)).status_code == 403
    [mine] = await world.read("/me/invitations", who)
    assert (mine["account_id"], mine["role"]) == (business.account, "account_member")
    [note] = (await world.read("/inbox", who))["items"]
    assert (note["kind"], note["title"]) == ("invitation", "Join Ada's Places?")

    joined = await world.make(f"/me/invitations/{business.account}/accept", who)
    assert joined["role"] == "account_member"
    assert (await world.get(account, who)).status_code == 200
    assert await world.read("/me/invitations", who) == []
    again = await world.call("POST", f"/me/invitations/{business.account}/accept", who)
    assert again.status_code == 404


async def test_an_invitation_is_declined_or_withdrawn_and_ends_by_itself(world: World) -> None:
    business, who = await world.business(), await world.user()
    invitations = f"/accounts/{business.account}/invitations"
    invitation = f"{invitations}/{await world.number(who)}"
    mine = f"/me/invitations/{business.account}"

    await world.put(invitation, business.admin, {})
    assert (await world.delete(mine, who)).status_code == 204
    assert (await world.call("POST", f"{mine}/accept", who)).status_code == 404

    await world.put(invitation, business.admin, {})
    assert (await world.delete(invitation, business.admin)).status_code == 204
    assert (await world.delete(invitation, business.admin)).status_code == 404
    assert (await world.call("POST", f"{mine}/accept", who)).status_code == 404

    await world.put(invitation, business.admin, {})
    world.clock.now = NOON + timedelta(days=15)
    assert await world.read("/me/invitations", who) == []
    assert await world.read(invitations, business.admin) == []
    assert (await world.call("POST", f"{mine}/accept", who)).status_code == 404


async def test_who_declines_is_told_of_another_invitation_once_a_day(world: World) -> None:
    business, who = await world.business(), await world.user()
    invitation = f"/accounts/{business.account}/invitations/{await world.number(who)}"
    for _ in range(3):
        await world.put(invitation, business.admin, {})
        await world.delete(f"/me/invitations/{business.account}", who)
    assert len((await world.read("/inbox", who))["items"]) == 1


async def test_an_invitation_is_for_who_was_asked_in_the_role_they_were_asked_for(
    world: World,
) -> None:
    business, who, other = await world.business(), await world.user(), await world.user()
    invitation = f"/accounts/{business.account}/invitations/{await world.number(who)}"
    await world.put(invitation, business.admin, {})
    await world.put(invitation, business.admin, {"role": "account_admin"})

    accept = f"/me/invitations/{business.account}/accept"
    assert (await world.call("POST", accept, other)).status_code == 404
    assert (await world.make(accept, who))["role"] == "account_admin"
    assert (await world.read("/me", who))["role"] == "account_admin"


async def test_only_admins_invite_and_not_who_is_there_or_nowhere(world: World) -> None:
    business, who = await world.business(), await world.user()
    invitations = f"/accounts/{business.account}/invitations"
    number, member = await world.number(who), await world.number(business.member)

    assert (await world.put(f"{invitations}/{number}", business.member, {})).status_code == 403
    assert (await world.get(invitations, business.member)).status_code == 403
    assert (await world.put(f"{invitations}/{member}", business.admin, {})).status_code == 409
    assert (await world.put(f"{invitations}/999999999", business.admin, {})).status_code == 404


async def test_a_closed_account_invites_nobody(world: World) -> None:
    business, who = await world.business(), await world.user()
    await world.put(
        f"/accounts/{business.account}/invitations/{await world.number(who)}", business.admin, {}
    )
    await world.delete(f"/accounts/{business.account}", business.admin)
    accept = await world.call("POST", f"/me/invitations/{business.account}/accept", who)
    assert accept.status_code == 404
    path = f"/accounts/{business.account}/invitations/{await world.number(who)}"
    operator = await world.user(role="operator")
    assert (await world.put(path, operator, {})).status_code == 409


async def test_a_closed_account_hides_its_hives(world: World) -> None:
    business = await world.business()

    assert (await world.delete(f"/accounts/{business.account}", business.admin)).status_code == 204

    assert (await world.get(f"/hives/{business.hive}")).status_code == 404


async def test_plans_are_told_with_their_features(world: World) -> None:
    plans = {plan["code"]: plan for plan in await world.read("/plans")}

    assert {"free", "basic", "premium", "business"} <= set(plans)
    assert plans["premium"]["price"] == "4.99"
    features = {each["code"]: each["limits"] for each in plans["free"]["features"]}
    assert features == {"alerts": {"alerts": 3}}


async def test_transactions_say_when_it_was_cancelled_and_when_it_expires(world: World) -> None:
    who = await world.user()
    number = world.subscribe("basic", user=await world.number(who))
    world.rows(
        "INSERT INTO transaction (subscription_id, provider_event_id, kind, amount, currency, at) "
        "VALUES (%s, %s, 'purchase', 1.99, 'EUR', %s)",
        *(number, uuid.uuid4().hex, NOON),
    )
    world.rows(
        "UPDATE subscription SET renews_at = %s WHERE id = %s", NOON + timedelta(days=30), number
    )
    await world.make(f"/subscriptions/{number}/cancel", who)

    [paid] = (await world.read("/me/transactions", who))["items"]

    assert (paid["kind"], paid["amount"], paid["plan"]) == ("purchase", "1.99", "basic")
    assert paid["cancelled_at"] == "2026-03-02T11:00:00Z"
    assert paid["expires_at"] == "2026-04-01T11:00:00Z"


async def test_a_cancelled_plan_holds_until_it_expires(world: World) -> None:
    who = await world.user()
    number = world.subscribe("premium", user=await world.number(who))
    world.rows(
        "UPDATE subscription SET renews_at = %s WHERE id = %s", NOON + timedelta(days=1), number
    )
    await world.make(f"/subscriptions/{number}/cancel", who)
    assert (await world.read("/me", who))["plan"] == "premium"

    world.clock.now = NOON + timedelta(days=2)

    assert (await world.read("/me", who))["plan"] == "free"


async def test_what_was_bought_in_a_store_is_cancelled_there(world: World) -> None:
    who = await world.user()
    number = world.subscribe("basic", user=await world.number(who))
    world.rows("UPDATE subscription SET provider = 'apple' WHERE id = %s", number)

    answer = await world.call("POST", f"/subscriptions/{number}/cancel", who)

    assert answer.status_code == 409
    assert "apple" in answer.json()["detail"]


async def test_subscriptions_of_others_are_not_there(world: World) -> None:
    business, stranger = await world.business(), await world.user()
    [held] = await world.read(f"/accounts/{business.account}/subscriptions", business.admin)

    answer = await world.call("POST", f"/subscriptions/{held['id']}/cancel", stranger)
    assert answer.status_code == 404
    answer = await world.get(f"/accounts/{business.account}/transactions", business.member)
    assert answer.status_code == 403


async def test_operators_grant_plans_to_a_user_or_to_an_account(world: World) -> None:
    operator, who = await world.user(role="operator"), await world.user()
    number = await world.number(who)

    made = await world.make("/subscriptions", operator, {"plan": "premium", "user_id": number})

    assert (made["plan"], made["provider"]) == ("premium", "manual")
    for wrong in (
        {"plan": "premium"},
        {"plan": "premium", "account_id": 1},  # a plan for users
        {"plan": "no_such", "user_id": number},
    ):
        answer = await world.call("POST", "/subscriptions", operator, json=wrong)
        assert answer.status_code == 422
    body = {"plan": "premium", "user_id": number}
    assert (await world.call("POST", "/subscriptions", who, json=body)).status_code == 403


async def test_a_person_opens_so_many_businesses(world: World) -> None:
    who = await world.user()
    for number in range(MAX_ACCOUNTS):
        await world.make("/accounts", who, {"name": f"Number {number}"})

    refused = await world.call("POST", "/accounts", who, json={"name": "One more"})

    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("at most 10 businesses")


async def test_what_costs_others_something_is_limited_by_the_day(world: World) -> None:
    business, other = await world.business(), await world.business()
    operator, guest = await world.user(role="operator"), await world.user()

    def bodies(of: Business) -> dict[tuple[str, str], tuple[str, str, Any]]:
        hive, account = f"/hives/{of.hive}", f"/accounts/{of.account}"
        place = {"name": "Next door", "type": "bar", "time_zone": "UTC"}
        metric = {"name": "Sold", "formula": "visits", "window_days": 7}
        return {
            ("add", "network"): ("POST", f"{hive}/networks", {"kind": "wifi"}),
            ("count", "hive"): ("POST", f"{hive}/counts", {"counted": 3}),
            ("define", "metric"): ("POST", f"{account}/metrics", metric),
            ("make", "deal"): ("POST", f"{hive}/deals", deal()),
            ("open", "hive"): ("POST", f"{account}/hives", place),
            ("register", "sensor"): ("POST", f"{hive}/sensors", {"serial": f"door-{of.hive}"}),
        }

    sensor = await world.make(f"/hives/{business.hive}/sensors", business.admin, {"serial": "gate"})
    for (action, entity), most in DAILY_LIMITS.items():
        world.rows(
            "INSERT INTO audit_log (account_id, action, entity) "
            "SELECT %s, %s, %s FROM generate_series(1, %s)",
            *(business.account, action, entity, most),
        )
    for verb, path, body in bodies(business).values():
        refused = await world.call(verb, path, business.admin, json=body)
        assert refused.status_code == 429, (path, refused.text)
        assert refused.headers["retry-after"]
    invited = f"/accounts/{business.account}/invitations/{await world.number(guest)}"
    refused = await world.put(invited, business.admin, {"role": "account_member"})
    assert refused.status_code == 429
    wanted = {"report_interval_min": 5}
    refused = await world.put(f"/sensors/{sensor['id']}/configuration", business.admin, wanted)
    assert refused.status_code == 429
    picture = {"file": ("a.png", png(), "image/png")}
    refused = await world.call(
        "POST", f"/hives/{business.hive}/images", business.admin, files=picture
    )
    assert refused.status_code == 429
    back = {"return_url": "https://hives.example/#/plan"}
    for path, body in (("checkout", {**back, "plan": "business"}), ("portal", back)):
        given = {**body, "account_id": business.account}
        refused = await world.call("POST", f"/payments/{path}", business.admin, json=given)
        assert refused.status_code == 429, refused.text
    for number, ends in ((DAILY_LIMIT - 1, 200), (1, 429)):  # what has no limit of its own
        world.rows(
            "INSERT INTO audit_log (account_id, action, entity) "
            "SELECT %s, 'edit', 'hive' FROM generate_series(1, %s)",
            *(business.account, number),
        )
        edited = await world.patch(f"/hives/{business.hive}", business.admin, {"name": "Comb"})
        assert edited.status_code == ends, edited.text

    for verb, path, body in bodies(other).values():  # what one does, others do not pay for
        answer = await world.call(verb, path, other.admin, json=body)
        assert answer.status_code == 201, answer.text
    await world.make(f"/hives/{business.hive}/deals", operator, deal())
    world.rows("UPDATE audit_log SET at = at - interval '1 day'")
    await world.make(f"/hives/{business.hive}/deals", business.admin, deal())
