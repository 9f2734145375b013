"""What a subscription is follows from its events, whatever order they come in."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.billing.models import (
    BillingEvent,
    HeldSubscription,
    PaymentProvider,
    SubscriptionOwner,
    SubscriptionState,
    SubscriptionStatus,
    fold_events,
    merge_entitlement,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ADA = SubscriptionOwner(user_id=1)


def event(
    number: int,
    status: SubscriptionStatus | None,
    day: float = 0,
    owner: SubscriptionOwner | None = ADA,
) -> BillingEvent:
    at = NOW + timedelta(days=day)
    standing = None if status is None else SubscriptionState(status, "premium", started_at=at)
    return BillingEvent(
        PaymentProvider.STRIPE, f"e{number}", at, "told", "s", owner=owner, state=standing
    )


events = st.builds(
    event,
    st.integers(0, 30),
    st.none() | st.sampled_from(SubscriptionStatus),
    st.integers(0, 5),
    st.sampled_from([None, ADA]),
)


@given(st.lists(events, max_size=12, unique_by=lambda each: each.id), st.randoms())
def test_order_and_repetition_do_not_matter(
    told: list[BillingEvent], chance: random.Random
) -> None:
    shuffled = told + [each for each in told if chance.random() < 0.5]
    chance.shuffle(shuffled)
    assert fold_events(shuffled) == fold_events(told)


def test_the_last_word_by_the_providers_clock_counts() -> None:
    told = [event(1, SubscriptionStatus.EXPIRED, 30), event(2, SubscriptionStatus.ACTIVE, 0)]
    folded = fold_events(told)
    assert folded is not None
    assert folded.state.status is SubscriptionStatus.EXPIRED
    assert folded.event_at == NOW + timedelta(days=30)
    assert folded.state.started_at == NOW


def test_in_one_second_an_end_comes_after_a_beginning() -> None:
    folded = fold_events(
        [event(1, SubscriptionStatus.EXPIRED), event(2, SubscriptionStatus.ACTIVE)]
    )
    assert folded is not None
    assert folded.state.status is SubscriptionStatus.EXPIRED


def test_the_owner_may_be_named_by_another_event() -> None:
    assert fold_events([event(1, SubscriptionStatus.ACTIVE, owner=None)]) is None
    folded = fold_events([event(1, SubscriptionStatus.ACTIVE, owner=None), event(2, None, 1)])
    assert folded is not None
    assert folded.owner == ADA


def held(
    plan: str,
    rank: int,
    status: SubscriptionStatus = SubscriptionStatus.ACTIVE,
    days: float | None = 10,
    **features: int,
) -> HeldSubscription:
    until = None if days is None else NOW + timedelta(days=days)
    limits = {code: {"alerts": limit} for code, limit in features.items()}
    return HeldSubscription(f"of {plan}", plan, rank, status, until, limits)


def test_the_best_plan_names_the_entitlement_and_all_features_count() -> None:
    merged = merge_entitlement(
        [held("basic", 10, alerts=20, extra=1), held("premium", 20, alerts=100)], NOW
    )
    assert merged.plan == "premium"
    assert merged.features == {"alerts": {"alerts": 100}, "extra": {"alerts": 1}}
    assert merged.providers == ("of basic", "of premium")


def test_a_limit_that_one_plan_lacks_is_none() -> None:
    unlimited = HeldSubscription(
        "apple", "premium", 20, SubscriptionStatus.ACTIVE, None, {"alerts": {}}
    )
    assert merge_entitlement([held("basic", 10, alerts=20), unlimited], NOW).features == {
        "alerts": {}
    }


def test_what_is_over_gives_nothing() -> None:
    gone = [
        held("premium", 20, SubscriptionStatus.EXPIRED),
        held("basic", 10, SubscriptionStatus.REFUNDED, alerts=3),
    ]
    merged = merge_entitlement(gone, NOW)
    assert (merged.plan, merged.features) == ("free", {})


def test_a_cancelled_plan_holds_to_its_end() -> None:
    cancelled = held("premium", 20, SubscriptionStatus.CANCELLED, days=1)
    assert merge_entitlement([cancelled], NOW).plan == "premium"
    assert merge_entitlement([cancelled], NOW + timedelta(days=1)).plan == "free"


def test_a_late_renewal_is_not_held_against_who_paid() -> None:
    day = timedelta(days=1)
    for status, grace in [
        (SubscriptionStatus.ACTIVE, day),
        (SubscriptionStatus.PAST_DUE, day),
        (SubscriptionStatus.CANCELLED, 0 * day),
    ]:
        standing = SubscriptionState(status, "premium", expires_at=NOW)
        folded = fold_events(
            [BillingEvent(PaymentProvider.STRIPE, "e", NOW, "told", "s", owner=ADA, state=standing)]
        )
        assert folded is not None
        assert folded.active_until == NOW + grace
