"""What a business does on its pages: invites by mail, writes to followers, replaces a sensor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from email.message import EmailMessage

import pytest

from penstock.core.errors import AccessRefused, NotFound
from penstock_hives.errors import InvalidRequest, RequestConflict
from penstock_hives.people.mail_invitations import PAUSE, MailInvitationService
from penstock_hives.people.permissions import Caller, UserRole
from penstock_hives.people.service import LIFE
from penstock_hives.resources import Resources, open_resources
from penstock_hives.settings import HivesSettings
from penstock_hives.webhooks.service import WebhookEvent, WebhookService
from penstock_store import Database
from tests.hives.app.world import Hands, Names, Post

FURNISH = """
    INSERT INTO account (id, name) VALUES (1, 'Ada''s <b>&</b> Sons') ON CONFLICT DO NOTHING;
    INSERT INTO hive_type (id, code, name) VALUES (1, 'bar', 'Bar') ON CONFLICT DO NOTHING;
    INSERT INTO hive (id, account_id, hive_type_id, name, time_zone)
    VALUES (1, 1, 1, 'The Comb', 'Europe/Berlin') ON CONFLICT DO NOTHING;
    INSERT INTO app_user (id, firebase_uid) SELECT n, 'u' || n FROM generate_series(1, 5) n
    ON CONFLICT DO NOTHING;
    DELETE FROM account_member; DELETE FROM mail_invitation; DELETE FROM follower_message;
    DELETE FROM notification; DELETE FROM user_hive; DELETE FROM sensor;
    DELETE FROM webhook;
    INSERT INTO account_member (account_id, user_id, role) VALUES (1, 1, 'account_admin');
"""


class Letters:
    def __init__(self) -> None:
        self.sent: list[EmailMessage] = []

    async def send(self, message: EmailMessage) -> None:
        self.sent.append(message)

    @property
    def token(self) -> str:
        text = self.sent[-1].get_content()
        return str(text.partition("code=")[2].split()[0])


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
async def resources(database: Database, hands: Hands) -> AsyncIterator[Resources]:
    database.execute(FURNISH)
    settings = HivesSettings(database=database.url, pool_wait=60.0)
    async with open_resources(settings, Names(), broker=Post(), clock=hands) as resources:
        yield resources


@pytest.fixture
async def admin(resources: Resources) -> Caller:
    return await resources.services.users.caller("u1")


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def invitations(resources: Resources, hands: Hands, letters: Letters) -> MailInvitationService:
    link = "https://hives.example/hives/invitations?code="
    return MailInvitationService(resources.pool, hands, letters, "no-reply@hives.example", link)


async def test_who_has_the_link_of_a_mail_joins_once(
    resources: Resources, admin: Caller, invitations: MailInvitationService, letters: Letters
) -> None:
    await invitations.invite(admin, 1, " Bob@Example.org ", UserRole.ACCOUNT_MEMBER)
    assert letters.sent[0]["To"] == "bob@example.org"
    assert letters.sent[0]["Subject"] == "Join Ada's <b>&</b> Sons"
    bob = await resources.services.users.caller("u2")
    assert (await invitations.find(letters.token)).role == "account_member"

    joined = await invitations.accept(bob, letters.token)

    assert joined.role == "account_member"
    assert (await resources.services.users.caller("u2")).memberships == {1: UserRole.ACCOUNT_MEMBER}
    assert await invitations.of_account(admin, 1) == []
    with pytest.raises(NotFound, match="invalid or has expired"):
        await invitations.accept(await resources.services.users.caller("u3"), letters.token)


async def test_an_invitation_is_limited_and_may_be_withdrawn_or_expire(
    resources: Resources,
    admin: Caller,
    invitations: MailInvitationService,
    letters: Letters,
    hands: Hands,
) -> None:
    await invitations.invite(admin, 1, "bob@example.org", UserRole.ACCOUNT_MEMBER)
    with pytest.raises(RequestConflict, match="less than an hour ago"):
        await invitations.invite(admin, 1, "bob@example.org", UserRole.ACCOUNT_ADMIN)
    first = letters.token
    hands.now += PAUSE
    await invitations.invite(admin, 1, "bob@example.org", UserRole.ACCOUNT_ADMIN)
    with pytest.raises(NotFound):
        await invitations.find(first)
    await invitations.withdraw(admin, 1, "bob@example.org")
    with pytest.raises(NotFound):
        await invitations.find(letters.token)
    await invitations.invite(admin, 1, "eve@example.org", UserRole.ACCOUNT_MEMBER)
    hands.now += LIFE
    with pytest.raises(NotFound):
        await invitations.find(letters.token)


async def test_only_admins_invite_and_only_addresses_are_invited(
    resources: Resources, admin: Caller, invitations: MailInvitationService, letters: Letters
) -> None:
    stranger = await resources.services.users.caller("u2")
    with pytest.raises(AccessRefused):
        await invitations.invite(stranger, 1, "bob@example.org", UserRole.ACCOUNT_ADMIN)
    for bad in ("bob", "a@b\nBcc: c@d", "a@b, c@d"):
        with pytest.raises(InvalidRequest):
            await invitations.invite(admin, 1, bad, UserRole.ACCOUNT_MEMBER)
    assert letters.sent == []


async def test_a_message_reaches_those_who_follow_twice_a_week(
    resources: Resources, admin: Caller, hands: Hands, database: Database
) -> None:
    followers = resources.services.followers
    with pytest.raises(RequestConflict, match="nobody follows"):
        await followers.send(admin, 1, "Hello", "We are open.")
    database.execute("INSERT INTO user_hive (user_id, hive_id, favourite) VALUES (2, 1, true)")
    database.execute("INSERT INTO user_hive (user_id, hive_id, favourite) VALUES (3, 1, false)")
    assert await followers.followers(admin, 1) == 1
    for title in ("<script>one</script>", "Two"):
        assert await followers.send(admin, 1, title, "We are open.") == 1
    with pytest.raises(RequestConflict, match="at most 2 messages in 7 days"):
        await followers.send(admin, 1, "Three", "We are open.")
    told = database.rows("SELECT user_id, title, hive_id FROM notification ORDER BY id")
    assert [(row["user_id"], row["title"]) for row in told] == [
        (2, "<script>one</script>"),
        (2, "Two"),
    ]
    hands.now += timedelta(days=7)
    assert await followers.send(admin, 1, "Three", "We are open.") == 1
    sent = await followers.of_account(admin, 1, 10)
    assert [each.title for each in sent] == ["Three", "Two", "<script>one</script>"]
    stranger = await resources.services.users.caller("u4")
    with pytest.raises(NotFound):
        await followers.send(stranger, 1, "Spam", "Spam.")


async def test_a_new_device_takes_over_the_door_of_an_old_one(
    resources: Resources, admin: Caller
) -> None:
    sensors = resources.services.sensors
    values = {"serial": "old", "name": "main door", "protocol": "v2", "direction_swapped": True}
    old = await sensors.register(admin, 1, {**values, "profile": {"byte_order": "little"}})
    new = await sensors.replace(admin, old.id, "new")
    assert (new.serial, new.name, new.protocol, new.direction_swapped) == (
        *("new", "main door", "v2"),
        True,
    )
    assert new.profile == {"byte_order": "little"}
    assert (await sensors.get(admin, old.id)).state == "retired"
    with pytest.raises(RequestConflict):
        await sensors.replace(admin, new.id, "old")
    assert (await sensors.get(admin, new.id)).state == "active"


async def test_webhooks_hear_of_changes_of_sensors(
    resources: Resources, admin: Caller, hands: Hands
) -> None:
    hooks = WebhookService(resources.pool, hands)
    hook, _ = await hooks.add(admin, 1, "https://example.org/hook", [WebhookEvent.SENSOR])
    sensors = resources.services.sensors
    made = await sensors.register(admin, 1, {"serial": "old", "name": "main door"})
    await sensors.edit(admin, made.id, {"name": "back door"}, None)
    await sensors.replace(admin, made.id, "new")
    with pytest.raises(RequestConflict):
        await sensors.register(admin, 1, {"serial": "new"})
    rows = await resources.pool.rows(
        "SELECT event, payload FROM webhook_delivery WHERE webhook_id = %s ORDER BY id", (hook.id,)
    )
    told = [(row["event"], row["payload"]["action"], row["payload"]["sensor"]) for row in rows]
    first = {"id": made.id, "serial": "old"}
    assert told[:3] == [
        ("sensor", "register", {**first, "name": "main door", "state": "active"}),
        ("sensor", "edit", {**first, "name": "back door", "state": "active"}),
        ("sensor", "retire", {**first, "name": "back door", "state": "retired"}),
    ]
    assert [(action, sensor["serial"]) for _, action, sensor in told[3:]] == [("register", "new")]
