"""Roles and permissions: who may do what, as one table.

A role is granted permissions; those of `ACCOUNT_SCOPED` hold only in the accounts one is a member
of, by the role one has there. Operators and admins have them in every account. This is the only
place that says so; `callers.py` asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    ANONYMOUS = "anonymous"  #: has not signed in
    USER = "user"  #: has signed in
    ACCOUNT_MEMBER = "account_member"  #: works for a business
    ACCOUNT_ADMIN = "account_admin"  #: answers for a business
    OPERATOR = "operator"  #: keeps the installation running: sensors, types, support
    ADMIN = "admin"  #: may do everything, and says who is what


class Permission(StrEnum):
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


_P: Final = Permission
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

#: These hold in the accounts one belongs to.
ACCOUNT_SCOPED: Final = _IN_CHARGE

GRANTS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.ANONYMOUS: _ANYBODY,
    Role.USER: _SIGNED_IN,
    Role.ACCOUNT_MEMBER: _SIGNED_IN | _MEMBER,
    Role.ACCOUNT_ADMIN: _SIGNED_IN | _IN_CHARGE,
    Role.OPERATOR: _SIGNED_IN | _IN_CHARGE | _OPERATING,
    Role.ADMIN: frozenset(Permission),
}

#: Roles that reach into every account.
EVERYWHERE: Final = frozenset({Role.OPERATOR, Role.ADMIN})
