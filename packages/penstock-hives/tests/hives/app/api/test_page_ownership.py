"""Owner by object, on the dashboard: a member of one business sees and changes nothing of another.

Pages and downloads are those of the section. Actions are the methods of services that page modules
call. A new page needs a line in `OBJECTS` or `LISTS`, and a new action arguments in `arguments`;
without them the tests fail.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page as nicegui_page

import penstock_hives
from penstock.core.errors import AccessRefused, NotFound
from penstock_hives.identity.mail import FileMailSender
from penstock_hives.people.mail_invitations import MailInvitationService
from penstock_hives.people.permissions import UserRole
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.section import section_over
from penstock_hives.webhooks.service import WebhookEvent, WebhookService
from penstock_store.dashboard.pages import (
    OPERATOR_ROLE,
    DashboardUser,
    PageRequest,
    SectionContext,
)
from tests.hives.app.api.test_ownership import Things, things
from tests.hives.app.world import NOON, World, deal, png

SOURCE = Path(penstock_hives.__file__).parent
#: Stands in every text of the business that is looked at.
MARK = "Secret Honey"
#: What the id in the path of a page is of.
OBJECTS = {
    "/hives/place/{id}": "hive",
    "/hives/place/{id}/edit": "hive",
    "/hives/deals/{id}": "deal",
    "/hives/sensors/{id}": "sensor",
    "/hives/export/{id}": "hive",
    "/hives/picture/{id}": "image",
}
#: Pages without an id, and whether their owner sees the mark on them.
LISTS = {
    "/hives": True,
    "/hives/analytics": True,
    "/hives/metrics": True,
    "/hives/deals": True,
    "/hives/feedback": True,
    "/hives/followers": True,
    "/hives/report": True,
    "/hives/sensors": True,
    "/hives/members": True,
    "/hives/webhooks": True,
    "/hives/plan": False,
    "/hives/invitations": False,
    "/hives/start": False,
    "/hives/new": False,
    "/hives/deals/new": True,
    "/hives/sensors/new": True,
}
_RENAME = """
    UPDATE account SET name = '{0}' WHERE id = {1}; UPDATE hive SET name = '{0}' WHERE id = {2};
    UPDATE deal SET title = '{0}' WHERE id = {3}; UPDATE sensor SET name = '{0}' WHERE id = {4};
    UPDATE user_message SET content = '{0}' WHERE id = {5};
    UPDATE custom_metric SET name = '{0}' WHERE id = {6};
    UPDATE app_user SET nickname = '{0}' WHERE id = {7};
    INSERT INTO webhook (account_id, url, secret, events)
    VALUES ({1}, 'https://x/{0}', 's', '{{deal}}')
"""


class Stage:
    def __init__(self, world: World, tmp_path: Path) -> None:
        self.world = world
        around = SectionContext(tmp_path, "amqp://127.0.0.1:1", world.database.url)
        self.context = DashboardContext(around)
        self.context._resources = world.resources
        self.context._mail = (FileMailSender(tmp_path), "no-reply@x")
        self.section = section_over(self.context)
        self.mine: Things
        self.owner = self.stranger = ""

    async def set(self) -> None:
        self.mine, self.owner = await things(self.world)
        self.stranger = (await self.world.business()).admin
        mine = self.mine
        ids = (
            mine.account,
            mine.hive,
            mine.deal,
            mine.sensor,
            mine.message,
            mine.metric,
            mine.user,
        )
        with self.world.database.transaction() as connection:
            for statement in _RENAME.format(MARK, *ids).split(";\n"):
                for each in statement.split("; "):
                    connection.execute(each)

    def request(self, who: str, parameters: dict[str, str], query: dict[str, str]) -> PageRequest:
        return PageRequest(DashboardUser(who, who, frozenset({"business"})), parameters, query)

    async def texts(self, draw: Any, request: PageRequest) -> str:
        """What is on a page."""
        client = Client(nicegui_page(f"/test/{id(request)}"), request=None)
        try:
            with client:
                await draw(request)
            return " ".join(
                f"{getattr(each, 'text', '')} {each._props!r}" for each in client.elements.values()
            )
        finally:
            client.delete()


@pytest.fixture
async def stage(world: World, tmp_path: Path) -> Stage:
    made = Stage(world, tmp_path)
    await made.set()
    return made


async def test_every_page_and_download_has_a_line(stage: Stage) -> None:
    pages = {each.path for each in stage.section.pages if each.role != OPERATOR_ROLE}
    downloads = {each.path for each in stage.section.downloads}
    assert pages | downloads == OBJECTS.keys() | LISTS.keys()
    assert {path for path in pages | downloads if "{" in path} == OBJECTS.keys()


async def test_an_object_of_another_business_is_not_there(stage: Stage) -> None:
    found = {each.path: each.draw for each in stage.section.pages}
    files = {each.path: each.answer for each in stage.section.downloads}
    for path, kind in OBJECTS.items():
        given = {"id": str(getattr(stage.mine, kind))}
        wanted, refused = (stage.request(who, given, {}) for who in (stage.owner, stage.stranger))
        if path in files:
            assert (await files[path](wanted)).status_code == 200, path
            assert (await files[path](refused)).status_code in (403, 404), path
            continue
        assert MARK in await stage.texts(found[path], wanted), path
        with pytest.raises((AccessRefused, NotFound)):
            await stage.texts(found[path], refused)


async def test_a_business_sees_the_pictures_of_a_place_that_it_hides(stage: Stage) -> None:
    stage.world.rows("UPDATE hive SET public = false WHERE id = %s", stage.mine.hive)
    [picture] = [each for each in stage.section.downloads if "picture" in each.path]
    given = {"id": str(stage.mine.image)}
    assert (await picture.answer(stage.request(stage.owner, given, {}))).status_code == 200
    assert (await picture.answer(stage.request(stage.stranger, given, {}))).status_code == 404


async def test_lists_show_nothing_of_another_business(stage: Stage) -> None:
    mine = stage.mine
    query = {
        "account": str(mine.account),
        "hive": str(mine.hive),
        "hives": str(mine.hive),
        "code": mine.code,
    }
    found = {each.path: each.draw for each in stage.section.pages}
    for path, is_marked in LISTS.items():
        request = stage.request(stage.owner, {}, query)
        if path != "/hives/invitations":  # the code is not one of an invitation
            assert (MARK in await stage.texts(found[path], request)) >= is_marked, path
        request = stage.request(stage.stranger, {}, query)
        try:
            shown = await stage.texts(found[path], request)
        except (AccessRefused, NotFound):
            continue
        assert MARK not in shown, path


#: Actions without an object of a business: what is public, and what is the caller's own.
OPEN = {
    ("accounts", "mine"),
    ("accounts", "open"),
    ("analytics", "popular"),
    ("analytics", "shifts"),
    ("hives", "add_type"),
    ("hives", "types"),
    ("plans", "plans"),
    ("users", "caller"),
    ("invitations", "accept"),
    ("invitations", "decline"),
    ("invitations", "of_user"),
    ("invitations", "mine"),
    # By a secret that only whoever was invited has.
    ("mail_invitations", "accept"),
    ("mail_invitations", "find"),
    # What the public page shows of a public place.
    ("occupancy", "live"),
    ("occupancy", "week"),
    ("occupancy", "forecast"),
    ("images", "of_hive"),
}
_SERVICES = {"WebhookService": "webhooks", "AnalyticsService": "analytics"}


def actions() -> set[tuple[str, str]]:
    """Service and method of every call in the page modules, but those of operators."""
    files = [
        *(each for name in ("page", "*_page", "editor") for each in SOURCE.glob(f"*/{name}.py")),
        *(SOURCE / name for name in ("analytics/explorer.py", "web/components.py")),
        SOURCE / "web/context.py",
    ]
    return {each for file in files for each in _calls(ast.parse(file.read_text()))}


def _calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name):
            if node.annotation.id in _SERVICES:
                names[node.arg] = _SERVICES[node.annotation.id]
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for name, what in pairs:
                if isinstance(name, ast.Name) and (service := _service(what)) is not None:
                    names[name.id] = service
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id in names:
                yield names[owner.id], node.attr
            elif (service := _service(owner)) is not None:
                yield service, node.attr


def _service(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _SERVICES.get(node.func.id)
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr == "mail_invitations":
        return node.attr
    is_service = isinstance(node.value, ast.Attribute) and node.value.attr == "services"
    return node.attr if is_service else None


def arguments(mine: Things, webhook: int) -> dict[str, Any]:
    """By the name of a parameter; `service.name` where a name means several things."""
    body = {**deal(), "starts_at": NOON, "expires_at": NOON + timedelta(days=1)}
    place = {"name": "X", "type": "bar", "time_zone": "UTC"}
    return {
        **{name: getattr(mine, name) for name in Things.__dataclass_fields__},
        "hives": [mine.hive],
        "webhook": webhook,
        "values": {"name": "X"},
        "deals.make.values": body,
        "deals.edit.values": {"title": "X"},
        "hives.open.values": place,
        "metrics.define.values": {"name": "X", "formula": "visits"},
        "sensors.register.values": {"serial": "x-1", "protocol": "v2"},
        "sensors.edit.values": {"name": "X", "hive_id": mine.hive},
        "wanted": {"report_interval_min": 5},
        "serial": "x-2",
        "url": "https://example.org/",
        "events": [WebhookEvent.DEAL],
        "email": "x@example.org",
        "role": UserRole.ACCOUNT_ADMIN,
        "content": "X",
        "images.add.content": png(),
        "kind": "secondary",
        "caption": "",
        "title": "X",
        "body": "X",
        "counted": 3,
        "begin": date(2026, 3, 1),
        "end": date(2026, 3, 2),
        "analytics.series.begin": NOON - timedelta(days=1),
        "analytics.series.end": NOON,
    }


async def test_no_action_of_a_page_works_on_another_business(stage: Stage) -> None:
    world, services = stage.world, stage.world.resources.services
    pool, clock = world.resources.pool, world.resources.clock
    others: dict[str, Any] = {
        "webhooks": WebhookService(pool, clock),
        "mail_invitations": MailInvitationService(pool, clock, None, "x@x", "https://x/"),  # type: ignore[arg-type]
    }
    stranger = await services.users.caller(stage.stranger)
    [hook] = world.rows("SELECT id FROM webhook WHERE account_id = %s", stage.mine.account)
    known = arguments(stage.mine, hook["id"])
    found = actions()
    assert len(found) > 50
    wrong = []
    for service, method in sorted(found - OPEN):
        work = getattr(others.get(service) or getattr(services, service), method)
        given: dict[str, Any] = {}
        for name, parameter in inspect.signature(work).parameters.items():
            if name == "caller":
                given[name] = stranger
            elif (value := known.get(f"{service}.{method}.{name}", known.get(name))) is not None:
                given[name] = value
            elif name == "limit":
                given[name] = 10
            elif parameter.default is inspect.Parameter.empty:
                given[name] = None
        try:
            await work(**given)
        except (AccessRefused, NotFound):
            continue
        except Exception as error:
            wrong.append((service, method, repr(error)))
        else:
            wrong.append((service, method, "done"))
    assert wrong == [], "\n".join(map(str, wrong))
