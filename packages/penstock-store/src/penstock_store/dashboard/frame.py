"""What is around every page: the name, the menu, light or dark, and who is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from nicegui import app, ui

from penstock_store.dashboard.pages import (
    Authenticator,
    DashboardPage,
    DashboardSection,
    DashboardUser,
    is_allowed,
)
from penstock_store.dashboard.theme import LOGO

_COLOUR_SCHEME: Final = "shade"
#: On narrow screens the menu is behind a button. Opening it needs nobody's answer.
_TOGGLE: Final = "() => document.body.classList.toggle('p-open')"
#: In the order in which the button goes through them: name → as NiceGUI has it, icon.
_COLOUR_SCHEMES: Final[dict[str, tuple[bool | None, str]]] = {
    "as the system": (None, "brightness_auto"),
    "light": (False, "light_mode"),
    "dark": (True, "dark_mode"),
}


class PageFrame:
    def __init__(self, sections: Sequence[DashboardSection], gate: Authenticator | None) -> None:
        self._sections = sections
        self._gate = gate

    @contextmanager
    def around(self, page: DashboardPage, person: DashboardUser) -> Iterator[Callable[[str], None]]:
        """Gives what names the page anew (`Visit.entitle`)."""

        def entitle(name: str) -> None:
            heading.set_text(name)
            ui.page_title(f"{name} · Penstock")

        with ui.header().classes("p-header"):
            burger = ui.button(icon="menu").props("flat round dense aria-label=Menu")
            burger.classes("p-burger").on("click", js_handler=_TOGGLE)
            with ui.link(target="/").classes("p-brand").props('aria-label="Penstock, all pages"'):
                logo()
                ui.label("Penstock").classes("p-brand-name")
            ui.space()
            _colour_scheme_switch()
            if self._gate is not None:
                _user_menu(person)
        ui.element("div").classes("p-scrim").on("click", js_handler=_TOGGLE)
        with ui.element("aside").classes("p-drawer"):
            self._menu(page, person)
        with ui.element("div").classes("p-page"):
            self._way_back(page)
            heading = ui.label(page.title).classes("p-h1").props("role=heading aria-level=1")
            yield entitle

    def _listed(self, current: DashboardPage) -> DashboardPage | None:
        """Where in the menu one is: the page itself, or the nearest it lies below."""
        pages = [page for section in self._sections for page in section.pages if page.listed]
        above = [page for page in pages if f"{current.path}/".startswith(f"{page.path}/")]
        return max(above, key=lambda page: len(page.path), default=None)

    def _way_back(self, current: DashboardPage) -> None:
        parent = self._listed(current)
        if parent is not None and parent.path != current.path:
            with ui.link(target=parent.path).classes("p-back"):
                ui.icon("arrow_back")
                ui.label(parent.title)

    def _menu(self, current: DashboardPage, person: DashboardUser) -> None:
        here = self._listed(current)
        with ui.element("nav").classes("p-menu").props("aria-label=Pages"):
            for section in self._sections:
                pages = [
                    page
                    for page in section.pages
                    if page.listed and is_allowed(person, page.role, self._gate)
                ]
                if not pages:
                    continue
                ui.label(section.name).classes("p-eyebrow")
                for page in pages:
                    with ui.link(target=page.path).classes("p-menu-item") as link:
                        if page is here:
                            link.classes("p-here").props("aria-current=page")
                        ui.icon(page.icon)
                        ui.label(page.title)


def logo() -> None:
    ui.html(LOGO, sanitize=False).classes("p-logo").props("aria-hidden=true")


def _colour_scheme_switch() -> None:
    names = list(_COLOUR_SCHEMES)
    chosen = app.storage.user.get(_COLOUR_SCHEME, names[0])
    if chosen not in _COLOUR_SCHEMES:
        chosen = names[0]
    shade = ui.dark_mode(_COLOUR_SCHEMES[chosen][0])
    button = ui.button(icon=_COLOUR_SCHEMES[chosen][1]).props("flat round dense")
    with button:
        hint = ui.tooltip()

    def show(name: str) -> None:
        shade.value, icon = _COLOUR_SCHEMES[name]
        button.set_icon(icon)
        button.props(f'aria-label="Colours: {name}"')
        hint.set_text(f"Colours: {name}")

    def following() -> None:
        name = names[(names.index(app.storage.user.get(_COLOUR_SCHEME, names[0])) + 1) % len(names)]
        app.storage.user[_COLOUR_SCHEME] = name
        show(name)

    show(chosen)
    button.on_click(following)


def _user_menu(person: DashboardUser) -> None:
    with ui.button(icon="account_circle").props("flat round dense aria-label=Account"):
        with ui.menu():
            ui.label(person.name).classes("p-menu-name")
            ui.menu_item("Sign out", lambda: ui.navigate.to("/sign-out"))
