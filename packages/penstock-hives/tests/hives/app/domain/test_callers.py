"""Who may do what: the table, and how it is asked."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.core.errors import AccessRefused, AuthenticationFailed
from penstock_hives.people.permissions import (
    ACCOUNT_SCOPED,
    ANONYMOUS,
    GRANTS,
    AppPermission,
    Caller,
    UserRole,
)

MEMBER = Caller(1, "m", UserRole.ACCOUNT_MEMBER, "free", memberships={7: UserRole.ACCOUNT_MEMBER})
BOTH = Caller(
    2,
    "b",
    UserRole.ACCOUNT_ADMIN,
    "business",
    memberships={7: UserRole.ACCOUNT_MEMBER, 8: UserRole.ACCOUNT_ADMIN},
)
OPERATOR = Caller(3, "o", UserRole.OPERATOR, "free")


def test_each_role_may_all_the_one_below_may() -> None:
    for lower, higher in pairwise(UserRole):
        assert GRANTS[lower] <= GRANTS[higher], (lower, higher)


def test_nobody_but_an_admin_says_who_is_what() -> None:
    assert [role for role in UserRole if AppPermission.EDIT_ROLES in GRANTS[role]] == [
        UserRole.ADMIN
    ]


def test_what_one_may_in_one_account_one_may_not_in_another() -> None:
    assert BOTH.may(AppPermission.EDIT_ACCOUNT, 8)
    assert not BOTH.may(AppPermission.EDIT_ACCOUNT, 7)
    assert not BOTH.may(AppPermission.READ_ACCOUNT, 9)
    assert BOTH.may(AppPermission.EDIT_ACCOUNT)  # somewhere


def test_a_role_without_a_membership_opens_no_account() -> None:
    former = Caller(4, "f", UserRole.ACCOUNT_ADMIN, "free")

    assert not any(former.may(permission) for permission in ACCOUNT_SCOPED)


def test_operators_reach_into_every_account() -> None:
    assert all(OPERATOR.may(permission, 12345) for permission in ACCOUNT_SCOPED)


def test_the_anonymous_are_told_to_sign_in_and_others_what_they_lack() -> None:
    with pytest.raises(AuthenticationFailed):
        ANONYMOUS.require(AppPermission.OWN_PROFILE)
    with pytest.raises(AccessRefused, match=r"account\.edit in account 7"):
        MEMBER.require(AppPermission.EDIT_ACCOUNT, 7)


@pytest.mark.parametrize(
    ("caller", "fresh"),
    [
        (ANONYMOUS, False),
        (Caller(1, "u", UserRole.USER, "free"), False),
        (Caller(1, "u", UserRole.USER, "basic"), False),
        (Caller(1, "u", UserRole.USER, "basic", frozenset({"live_figures"})), True),
        (MEMBER, True),
        (OPERATOR, True),
    ],
)
def test_who_pays_or_runs_a_place_has_the_figures_of_the_minute(
    caller: Caller, fresh: bool
) -> None:
    assert caller.reads_live is fresh
