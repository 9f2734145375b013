"""Who asks: the one value every decision about permission is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.core.errors import AccessRefused, AuthenticationFailed
from penstock.hives.app.domain.roles import ACCOUNT_SCOPED, EVERYWHERE, GRANTS, Permission, Role

#: Plans whose callers are answered from the cache only.
UNPAID: Final = frozenset({"anonymous", "free", "business_free"})


@dataclass(frozen=True, slots=True)
class Caller:
    id: int | None
    uid: str | None
    role: Role
    plan: str
    features: frozenset[str] = frozenset()
    #: Account → what the caller is there.
    memberships: Mapping[int, Role] = field(default_factory=dict)

    def may(self, permission: Permission, account: int | None = None) -> bool:
        """In this account; without one, in any at all."""
        if permission not in ACCOUNT_SCOPED or self.role in EVERYWHERE:
            return permission in GRANTS[self.role]
        if account is None:
            return any(permission in GRANTS[role] for role in self.memberships.values())
        member = self.memberships.get(account)
        return member is not None and permission in GRANTS[member]

    def require(self, permission: Permission, account: int | None = None) -> None:
        if self.may(permission, account):
            return
        if self.id is None:
            raise AuthenticationFailed("sign in to do this")
        where = "" if account is None else f" in account {account}"
        raise AccessRefused(f"this needs the permission {permission}{where}")

    @property
    def fresh(self) -> bool:
        """Whether the database may be read for them; others get what the cache has."""
        return self.plan not in UNPAID or bool(self.memberships) or self.role in EVERYWHERE

    @property
    def known(self) -> int:
        """Their id, for what only the signed-in do."""
        if self.id is None:
            raise AuthenticationFailed("sign in to do this")
        return self.id


ANONYMOUS: Final = Caller(None, None, Role.ANONYMOUS, "anonymous")
