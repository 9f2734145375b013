"""The section of hives: its pages over an office that is open while the dashboards run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from penstock.web.gate import Gate
from penstock.web.hives import deals, feedback, invitations, overview, place, sensors
from penstock.web.hives.exports import export
from penstock.web.hives.gate import BUSINESS, HivesGate
from penstock.web.hives.office import Office
from penstock.web.pages import Download, Page, Section, Surroundings, Visit

Draw = Callable[[Office, Visit], Awaitable[None]]


def section(around: Surroundings) -> Section:
    return section_over(Office(around))


def gated(around: Surroundings) -> tuple[Section, Gate]:
    """The section, and the gate that asks who comes in; one office serves both."""
    office = Office(around)
    return section_over(office), HivesGate(office)


def section_over(office: Office) -> Section:
    def page(path: str, title: str, icon: str, draw: Draw, about: str, listed: bool = True) -> Page:
        return Page(path, title, icon, partial(draw, office), about, BUSINESS, listed)

    return Section(
        "Hives",
        (
            page("/hives", "Places", "hive", overview.draw, "How full they are, and how it goes."),
            page("/hives/deals", "Deals", "local_offer", deals.draw, "And what came of them."),
            page("/hives/feedback", "Feedback", "forum", feedback.draw, "What people say."),
            page("/hives/sensors", "Sensors", "sensors", sensors.draw, "Whether doors are heard."),
            Page(
                invitations.PATH,
                "Invitations",
                "mail",
                partial(invitations.draw, office),
                "Businesses that ask you to join.",
            ),
            page("/hives/place/{id}", "Place", "hive", place.draw, "", listed=False),
        ),
        (Download("/hives/export/{id}", export(office), BUSINESS),),
        office.open,
    )
