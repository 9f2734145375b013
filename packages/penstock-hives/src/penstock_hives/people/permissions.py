"""Roles, their permissions in one table, and the caller of a request.

Permissions in `ACCOUNT_SCOPED` apply to the accounts the caller is a member of, by the role there.
Operators and admins have them in every account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.core.errors import AccessRefused, AuthenticationFailed


class UserRole(StrEnum):
    ANONYMOUS = "anonymous"  #: not signed in
    USER = "user"  #: signed in
    ACCOUNT_MEMBER = "account_member"  #: a member of a business
    ACCOUNT_ADMIN = "account_admin"  #: runs a business
    OPERATOR = "operator"  #: runs the installation: sensors, types, support
    ADMIN = "admin"  #: all permissions, and assigns roles


class AppPermission(StrEnum):
    READ_PUBLIC = "public.read"  #: hives, occupancy, deals, plans
    RECORD_ACTIVITY = "activity.record"
    OWN_PROFILE = "profile.own"
    OWN_MESSAGES = "messages.own"
    OWN_PLACES = "places.own"  #: favourites, recent hives, notification settings
    REDEEM_DEALS = "deals.redeem"
    OWN_KEYS = "keys.own"
    OPEN_ACCOUNT = "accounts.open"

    READ_ACCOUNT = "account.read"
    EDIT_ACCOUNT = "account.edit"
    EDIT_MEMBERS = "account.members"
    READ_BILLING = "account.billing"
    EDIT_HIVES = "hives.edit"
    COUNT_HEADS = "hives.count"
    EDIT_DEALS = "deals.edit"
    EDIT_IMAGES = "images.edit"
    READ_SENSORS = "sensors.read"
    EDIT_SENSORS = "sensors.edit"
    ANSWER_MESSAGES = "messages.answer"
    READ_ANALYTICS = "analytics.read"
    EDIT_METRICS = "metrics.edit"
    READ_AUDIT = "audit.read"

    EDIT_TYPES = "types.edit"
    READ_USERS = "users.read"
    READ_USAGE = "usage.read"
    GRANT_PLANS = "plans.grant"
    EDIT_ROLES = "users.roles"


_P: Final = AppPermission
_ANYBODY: Final = frozenset({_P.READ_PUBLIC, _P.RECORD_ACTIVITY})
_SIGNED_IN: Final = _ANYBODY | {
    *(_P.OWN_PROFILE, _P.OWN_MESSAGES, _P.OWN_PLACES, _P.REDEEM_DEALS),
    *(_P.OWN_KEYS, _P.OPEN_ACCOUNT),
}
_MEMBER: Final = frozenset(
    {
        *(_P.READ_ACCOUNT, _P.COUNT_HEADS, _P.EDIT_DEALS, _P.EDIT_IMAGES, _P.READ_SENSORS),
        *(_P.ANSWER_MESSAGES, _P.READ_ANALYTICS),
    }
)
_IN_CHARGE: Final = _MEMBER | {
    *(_P.EDIT_ACCOUNT, _P.EDIT_MEMBERS, _P.READ_BILLING, _P.EDIT_HIVES, _P.EDIT_SENSORS),
    *(_P.EDIT_METRICS, _P.READ_AUDIT),
}
_OPERATING: Final = frozenset({_P.EDIT_TYPES, _P.READ_USERS, _P.READ_USAGE, _P.GRANT_PLANS})

#: These apply to the caller's accounts only.
ACCOUNT_SCOPED: Final = _IN_CHARGE

GRANTS: Final[Mapping[UserRole, frozenset[AppPermission]]] = {
    UserRole.ANONYMOUS: _ANYBODY,
    UserRole.USER: _SIGNED_IN,
    UserRole.ACCOUNT_MEMBER: _SIGNED_IN | _MEMBER,
    UserRole.ACCOUNT_ADMIN: _SIGNED_IN | _IN_CHARGE,
    UserRole.OPERATOR: _SIGNED_IN | _IN_CHARGE | _OPERATING,
    UserRole.ADMIN: frozenset(AppPermission),
}

#: Roles with access to every account.
EVERYWHERE: Final = frozenset({UserRole.OPERATOR, UserRole.ADMIN})


class PlanFeatureCode(StrEnum):
    """What plans sell. The tables of plans say which plan includes what, and how much of it."""

    LIVE_FIGURES = "live_figures"  #: public reads from the database instead of the cache
    FORECASTS = "forecasts"  #: of days other than today
    RECOMMENDATIONS = "recommendations"  #: deals chosen for the user
    ALERTS = "alerts"  #: so many
    DASHBOARD = "dashboard"  #: so many hives
    CUSTOM_METRICS = "custom_metrics"  #: so many


@dataclass(frozen=True, slots=True)
class Caller:
    id: int | None
    uid: str | None
    role: UserRole
    plan: str
    features: frozenset[str] = frozenset()
    #: Account → role in it.
    memberships: Mapping[int, UserRole] = field(default_factory=dict)

    def may(self, permission: AppPermission, account: int | None = None) -> bool:
        """In this account; without one, in any."""
        if permission not in ACCOUNT_SCOPED or self.role in EVERYWHERE:
            return permission in GRANTS[self.role]
        if account is None:
            return any(permission in GRANTS[role] for role in self.memberships.values())
        member = self.memberships.get(account)
        return member is not None and permission in GRANTS[member]

    def require(self, permission: AppPermission, account: int | None = None) -> None:
        if self.may(permission, account):
            return
        if self.id is None:
            raise AuthenticationFailed("sign in first")
        where = "" if account is None else f" in account {account}"
        raise AccessRefused(f"this needs the permission {permission}{where}")

    def includes(self, feature: PlanFeatureCode) -> bool:
        """Whether a plan of the caller or of their accounts includes it."""
        return feature in self.features or self.role in EVERYWHERE

    @property
    def reads_live(self) -> bool:
        """Whether public reads come from the database instead of the cache. Those of members do, so
        that they see their changes."""
        return self.includes(PlanFeatureCode.LIVE_FIGURES) or bool(self.memberships)

    @property
    def known(self) -> int:
        """The id of a signed-in caller."""
        if self.id is None:
            raise AuthenticationFailed("sign in first")
        return self.id


ANONYMOUS: Final = Caller(None, None, UserRole.ANONYMOUS, "anonymous")
