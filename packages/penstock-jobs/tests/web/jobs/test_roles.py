"""Where there is a gate, jobs are for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock_jobs.service import JobService
from penstock_jobs.web.section import section_over
from penstock_store.dashboard.pages import OPERATOR_ROLE, Authenticator, DashboardUser, is_allowed
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
