"""What plans sell is what they give: every feature of the tables is enforced, and here tested."""

from __future__ import annotations

from penstock_hives.people.permissions import PlanFeatureCode
from tests.hives.app.world import World

#: Feature → where it is tested. A feature without a line fails `test_every_feature_is_enforced`.
TESTED = {
    PlanFeatureCode.LIVE_FIGURES: "test_live_figures_are_for_plans_that_include_them",
    PlanFeatureCode.FORECASTS: "test_forecasts_of_other_days_are_for_plans_that_include_them",
    PlanFeatureCode.RECOMMENDATIONS: "test_recommendations_are_for_plans_that_include_them",
    PlanFeatureCode.ALERTS: "test_places.py::test_a_plan_includes_so_many_alerts",
    PlanFeatureCode.DASHBOARD: "test_hives.py::test_a_plan_includes_so_many_hives",
    PlanFeatureCode.CUSTOM_METRICS: "test_analytics.py",
}


async def test_every_feature_is_enforced(world: World) -> None:
    sold = {feature["code"] for plan in await world.read("/plans") for feature in plan["features"]}
    assert sold == set(TESTED) == set(PlanFeatureCode)


async def test_live_figures_are_for_plans_that_include_them(world: World) -> None:
    who = await world.user()
    caller = world.resources.services.users.caller
    for plan, fresh in ((None, False), ("basic", True)):
        if plan is not None:
            world.subscribe(plan, user=await world.number(who))
        assert (await caller(who)).reads_live is fresh


async def test_forecasts_of_other_days_are_for_plans_that_include_them(world: World) -> None:
    business, who = await world.business(plan=None), await world.user()
    path = f"/hives/{business.hive}/forecast"
    assert (await world.get(f"{path}?day=2026-03-02", who)).status_code == 200  # today
    for reader in (None, who, business.admin):
        refused = await world.get(f"{path}?day=2026-03-03", reader)
        assert refused.status_code == 402
        assert refused.headers["content-type"] == "application/problem+json"
        problem = refused.json()
        assert (problem["title"], problem["feature"]) == ("Not in your plan", "forecasts")
        assert problem["plans"] == ["premium", "business"]
        assert problem["detail"].endswith("choose the plan premium or business")

    # Not the same readers: the plan of a reader is cached for a minute.
    other, business = await world.user(), await world.business(plan="business")
    path = f"/hives/{business.hive}/forecast"
    world.subscribe("premium", user=await world.number(other))
    for reader in (other, business.admin):
        assert (await world.get(f"{path}?day=2026-03-03", reader)).status_code == 200


async def test_recommendations_are_for_plans_that_include_them(world: World) -> None:
    who = await world.user()
    refused = await world.get("/me/deals/recommended", who)
    assert (refused.status_code, refused.json()["plans"]) == (402, ["premium"])

    world.subscribe("basic", user=await world.number(who))
    assert (await world.get("/me/deals/recommended", who)).status_code == 402
    world.subscribe("premium", user=await world.number(who))
    assert await world.read("/me/deals/recommended", who) == []


async def test_operators_need_no_plan(world: World) -> None:
    operator = await world.user(role="operator")
    assert await world.read("/me/deals/recommended", operator) == []
