"""Sign-in of the job pages, and the users of tokens."""

from __future__ import annotations

import asyncio

from penstock.core.errors import AuthenticationFailed
from penstock.core.passwords import PasswordVerifier
from penstock_jobs.users.repository import JobUser, UserRepository
from penstock_store.dashboard.pages import OPERATOR_ROLE, DashboardUser


class JobsAuthenticator:
    """Implements `penstock_store.dashboard.pages.Authenticator`; set `users` before it is used."""

    users: UserRepository

    def __init__(self) -> None:
        self._passwords = PasswordVerifier()

    async def sign_in(self, name: str, password: str, address: str) -> str | None:
        stored = await asyncio.to_thread(self.users.password_hash, name)
        try:
            right = await self._passwords.check(stored, password, address)
        except AuthenticationFailed:
            right = False
        action = "signed in" if right else "sign-in refused"
        await asyncio.to_thread(self.users.log, name[:64], action, "", address)
        return await asyncio.to_thread(self.users.new_session, name) if right else None

    async def find_user(self, key: str) -> DashboardUser | None:
        user = await asyncio.to_thread(self.users.user_of_session, key)
        return None if user is None else dashboard_user(user)

    async def sign_out(self, key: str) -> None:
        await asyncio.to_thread(self.users.end_session, key)


def dashboard_user(user: JobUser) -> DashboardUser:
    roles = {user.role.value} | ({OPERATOR_ROLE} if user.is_operator else set())
    return DashboardUser(user.name, user.name, frozenset(roles))
