"""`/hives/plan`: the plan of a business, what it includes, and its invoices."""

from __future__ import annotations

from functools import partial

from nicegui import ui

from penstock_hives.billing.models import PlanFeature, SubscriptionPlan
from penstock_hives.people.permissions import AppPermission
from penstock_hives.web import components
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_hives.web.forms import act, ask
from penstock_store.dashboard.pages import PageRequest

_PATH = "/hives/plan"
_SHOWN = 50
_LIMITS = {"hives": "places: up to", "metrics": "up to", "alerts": "up to"}
_ENTRIES = {
    "purchase": "Purchase",
    "renewal": "Renewal",
    "refund": "Refund",
    "cancel": "Cancellation",
    "expire": "End",
}


async def draw_plan(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    view.caller.require(AppPermission.READ_BILLING, view.account.id)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, _PATH)
    here = f"{_PATH}?account={view.account.id}"
    await _subscriptions(context, view, here)
    plans = [each for each in await context.services.plans.plans() if each.audience == "account"]
    with components.card("Plans"), ui.element("div").classes("h-plans"):
        for plan in plans:
            await _plan(context, view, plan, here)
    await _invoices(context, view)


async def _subscriptions(context: DashboardContext, view: AccountView, here: str) -> None:
    plans = context.services.plans
    held = await plans.subscriptions(view.caller, view.account.id)
    current = [each for each in held if each.status in ("active", "trial", "past_due", "cancelled")]
    hives = f"{len(view.hives):,}"
    with components.figures():
        components.figure(view.account.plan, "plan")
        components.figure(hives, "places")
    with components.card("Subscriptions"):
        if not current:
            components.empty_state("receipt_long", "No subscription", "You use the free plan.")
            return
        zone = view.account.time_zone
        with components.table(
            ["Plan", "Status", "Provider", "Since", "Renews", "Ends", ""]
        ) as table:
            for each in current:
                with table.row() as row:
                    for text in (
                        each.plan,
                        each.status.replace("_", " "),
                        each.provider,
                        components.clock_text(each.started_at, zone),
                        components.clock_text(each.renews_at, zone),
                        components.clock_text(each.expires_at, zone),
                    ):
                        with row.cell():
                            ui.label(text)
                    with row.cell():
                        if each.provider in ("manual", "test") and each.status != "cancelled":
                            cancel = partial(plans.cancel, view.caller, each.id)
                            dialog = ask("Cancel the subscription?", "Cancel it", cancel, here)
                            ui.button("Cancel", on_click=dialog.open).props("flat dense no-caps")
        if any(each.provider == "stripe" for each in current):
            open_portal = partial(context.open_portal, view.caller, view.account.id, here)
            ui.button(
                "Payment methods and invoices",
                icon="open_in_new",
                on_click=partial(act, open_portal, ""),
            ).props("outline no-caps")


async def _plan(
    context: DashboardContext, view: AccountView, plan: SubscriptionPlan, here: str
) -> None:
    is_current = plan.code == view.account.plan
    with ui.column().classes("h-plan gap-1"):
        with ui.row().classes("items-center gap-2"):
            ui.label(plan.name).classes("p-h3")
            if is_current:
                components.pill("current", "good")
        ui.label(price_text(plan)).classes("p-muted")
        for feature in plan.features:
            ui.label(f"✓ {feature_text(feature)}")
        if plan.price and not is_current and context.sells_plans:
            buy = partial(context.open_checkout, view.caller, view.account.id, plan.code, here)
            ui.button("Choose", on_click=partial(act, buy, "")).props("unelevated no-caps")


def price_text(plan: SubscriptionPlan) -> str:
    return f"{plan.price} {plan.currency} a {plan.period}" if plan.price else "free"


def feature_text(feature: PlanFeature) -> str:
    limits = [f"{_LIMITS.get(name, name)} {most:,}" for name, most in feature.limits.items()]
    return feature.name + (f" ({', '.join(limits)})" if limits else "")


async def _invoices(context: DashboardContext, view: AccountView) -> None:
    found = await context.services.plans.transactions(view.caller, view.account.id, None, _SHOWN)
    with components.card("Invoices and payments"):
        if not found.items:
            components.empty_state("receipt", "No payments yet", "Payments are listed here.")
            return
        with components.table(["Date", "What", "Amount:"]) as table:
            for each in found.items:
                with table.row() as row:
                    with row.cell():
                        ui.label(components.clock_text(each.at, view.account.time_zone))
                    with row.cell():
                        ui.label(_ENTRIES.get(each.kind, each.kind))
                    with row.cell():
                        amount = "–" if each.amount is None else f"{each.amount} {each.currency}"
                        ui.label(amount).classes("p-number")
