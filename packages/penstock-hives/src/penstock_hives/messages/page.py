"""`/hives/feedback`: feedback, its sentiment, and replies."""

from __future__ import annotations

from datetime import timedelta

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock_hives.messages.models import UserMessage
from penstock_hives.web import charts, components
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_store.dashboard.pages import PageRequest
from penstock_store.dashboard.theme import draw_chart

_SHOWN = 30
_PERIOD = timedelta(days=28)
_ANY = "all"


async def draw_feedback(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, "/hives/feedback")
    summaries = await context.services.messages.feedback(view.caller, view.account.id)
    total = sum(each.messages for each in summaries)
    with components.figures():
        components.figure(f"{total:,}", "messages")
        components.figure(f"{sum(each.positive for each in summaries):,}", "positive")
        components.figure(f"{sum(each.neutral for each in summaries):,}", "neutral")
        components.figure(f"{sum(each.negative for each in summaries):,}", "negative")
        components.figure(f"{sum(each.unread for each in summaries):,}", "not rated yet")
    today = context.resources.clock().date()
    days = await context.services.messages.feedback_days(
        view.caller, view.account.id, today - _PERIOD, today
    )
    if days:
        with components.card("Sentiment", "Positive and negative messages of the last four weeks."):
            about = "Positive and negative messages by day"
            draw_chart(charts.sentiment_chart(days), about).props("data-chart=voices")
    with components.card("Feedback", "The sentiment is computed, for English texts only."):
        await _Messages(context, view).draw()


class _Messages:
    def __init__(self, context: DashboardContext, view: AccountView) -> None:
        self._context = context
        self._view = view
        self._names = {hive.id: hive.name for hive in view.hives}
        self._sentiment: str | None = None

    async def draw(self) -> None:
        options = {_ANY: "All", **{name: name.capitalize() for name in components.SENTIMENTS}}
        chosen = ui.toggle(options, value=_ANY, on_change=lambda event: self._choose(event.value))
        chosen.props("no-caps unelevated").classes("h-toggle")
        self._list = ui.column().classes("w-full gap-0")
        await self._show()

    async def _choose(self, sentiment: str) -> None:
        self._sentiment = None if sentiment == _ANY else sentiment
        await self._show()

    async def _show(self) -> None:
        found = await self._context.services.messages.of_account(
            self._view.caller, self._view.account.id, None, self._sentiment, None, _SHOWN
        )
        self._list.clear()
        with self._list:
            if not found.items:
                components.empty_state("forum", "No feedback", "Users send feedback with the app.")
            for message in found.items:
                self._draw(message)

    def _draw(self, message: UserMessage) -> None:
        with ui.column().classes("h-message gap-1"):
            with ui.row().classes("items-center gap-2"):
                label = message.sentiment_label
                components.pill(
                    label or "not rated yet", components.SENTIMENTS.get(label or "", "busy")
                )
                if message.rating is not None:
                    stars = ui.label("★" * message.rating + "☆" * (5 - message.rating))
                    stars.classes("h-stars").props(
                        f'role=img aria-label="{message.rating} of 5 stars"'
                    )
                where = self._names.get(message.hive_id or 0, self._view.account.name)
                when = components.clock_text(message.created_at, self._view.account.time_zone)
                ui.label(f"{where} · {when}").classes("p-muted p-small")
            ui.label(message.content)
            with ui.row().classes("items-center gap-2 w-full no-wrap"):
                answer = ui.input(placeholder="Answer").props("outlined dense").classes("grow")
                answer.props(f'aria-label="Answer to message {message.id}"')
                ui.button(icon="send", on_click=lambda: self._reply(message.id, answer)).props(
                    "flat round dense aria-label=Send"
                )

    async def _reply(self, message: int, answer: ui.input) -> None:
        if not (text := (answer.value or "").strip()):
            return
        try:
            await self._context.services.messages.reply(self._view.caller, message, text)
        except PenstockError as error:
            ui.notify(str(error), type="negative")
        else:
            answer.set_value("")
            ui.notify("Sent", type="positive")
