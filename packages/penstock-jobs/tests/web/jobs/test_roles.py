"""Where there is a gate, jobs are for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock_jobs.model import Fake
from penstock_jobs.service import JobService
from penstock_jobs.users.repository import UserRepository
from penstock_jobs.web.section import SectionPages, gated, section_over
from penstock_store.dashboard.pages import (
    OPERATOR_ROLE,
    Authenticator,
    DashboardUser,
    PageRequest,
    SectionContext,
    is_allowed,
)
from tests.jobs.http.memory import MemoryJobs


class Keeper:
    async def sign_in(self, name: str, password: str, address: str) -> str | None:
        return None

    async def find_user(self, key: str) -> DashboardUser | None:
        return None

    async def sign_out(self, key: str) -> None: ...


@asynccontextmanager
async def opened() -> AsyncIterator[JobService]:
    yield MemoryJobs()


@pytest.mark.parametrize(
    ("roles", "may"), [((), False), (("business",), False), (("business", OPERATOR_ROLE), True)]
)
def test_pages_and_results_are_for_operators(roles: tuple[str, ...], may: bool) -> None:
    section = section_over(opened)
    keeper: Authenticator = Keeper()
    person = DashboardUser("1", "Ada", frozenset(roles))
    guarded = [(each.path, each.role) for each in section.pages]
    guarded += [(each.path, each.role) for each in section.downloads]
    for path, role in guarded:
        assert is_allowed(person, role, keeper) is may, path
        assert is_allowed(person, role, None), "without a gate everyone may"


async def test_with_accounts_of_its_own_each_visitor_sees_what_the_role_allows() -> None:
    section, gate = gated(SectionContext(Path(), "amqp://localhost"))
    roles = {each.path: each.role for each in section.pages}
    roles |= {each.path: each.role for each in section.downloads}
    assert {path for path, role in roles.items() if role is not None} == {"/audit", "/schedules"}
    backend = MemoryJobs()
    await backend.submit(Fake("hers"), owner="ada")
    await backend.submit(Fake("his"), owner="bob")

    @asynccontextmanager
    async def memory() -> AsyncIterator[JobService]:
        yield backend

    gate.users = log = Logged()
    pages = SectionPages(memory, gate)
    async with pages.open():
        for role, seen in (("submitter", ["hers"]), ("operator", ["his", "hers"])):
            visit = PageRequest(DashboardUser("ada", "ada", frozenset((role,))), {}, {})
            jobs = pages.jobs(visit)
            assert [each.id for each in (await jobs.list()).records] == seen
        await jobs.cancel("his")
        his, hers = await backend.get("his"), await backend.get("hers")
        for role, may in (
            ("submitter", (True, True, False, False)),
            ("viewer", (False, False, False, False)),
            ("operator", (True, True, True, True)),
        ):
            jobs = pages.jobs(PageRequest(DashboardUser("ada", "ada", frozenset((role,))), {}, {}))
            assert may == (
                *(jobs.may_submit(), jobs.may_change(hers), jobs.may_change(his)),
                jobs.may_operate(),
            )
    assert log.entries == [("ada", "cancelled", "his")]


class Logged(UserRepository):
    def __init__(self) -> None:
        self.entries: list[tuple[str, str, str]] = []

    def log(self, who: str, action: str, job: str = "", detail: str = "") -> None:
        self.entries.append((who, action, job))
