"""The frame of every page: header, menu, colour scheme, user menu."""

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
#: On narrow screens a button opens the menu, without the server.
_TOGGLE: Final = "() => document.body.classList.toggle('p-open')"
#: In the order of the button: name → NiceGUI's value, icon.
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
    def around(self, page: DashboardPage, user: DashboardUser) -> Iterator[Callable[[str], None]]:
        """Yields the function that changes the title."""

        def set_title(name: str) -> None:
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
                _user_menu(user)
        ui.element("div").classes("p-scrim").on("click", js_handler=_TOGGLE)
        with ui.element("aside").classes("p-drawer"):
            self._menu(page, user)
        with ui.element("div").classes("p-page"):
            self._back_link(page)
            heading = ui.label(page.title).classes("p-h1").props("role=heading aria-level=1")
            yield set_title

    def _menu_page(self, current: DashboardPage) -> DashboardPage | None:
        """The page itself, or its nearest parent in the menu."""
        pages = [page for section in self._sections for page in section.pages if page.in_menu]
        above = [page for page in pages if f"{current.path}/".startswith(f"{page.path}/")]
        return max(above, key=lambda page: len(page.path), default=None)

    def _back_link(self, current: DashboardPage) -> None:
        parent = self._menu_page(current)
        if parent is not None and parent.path != current.path:
            with ui.link(target=parent.path).classes("p-back"):
                ui.icon("arrow_back")
                ui.label(parent.title)

    def _menu(self, current: DashboardPage, user: DashboardUser) -> None:
        here = self._menu_page(current)
        with ui.element("nav").classes("p-menu").props("aria-label=Pages"):
            for section in self._sections:
                pages = [
                    page
                    for page in section.pages
                    if page.in_menu and is_allowed(user, page.role, self._gate)
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
    dark_mode = ui.dark_mode(_COLOUR_SCHEMES[chosen][0])
    button = ui.button(icon=_COLOUR_SCHEMES[chosen][1]).props("flat round dense")
    with button:
        hint = ui.tooltip()

    def show(name: str) -> None:
        dark_mode.value, icon = _COLOUR_SCHEMES[name]
        button.set_icon(icon)
        button.props(f'aria-label="Colours: {name}"')
        hint.set_text(f"Colours: {name}")

    def switch() -> None:
        name = names[(names.index(app.storage.user.get(_COLOUR_SCHEME, names[0])) + 1) % len(names)]
        app.storage.user[_COLOUR_SCHEME] = name
        show(name)

    show(chosen)
    button.on_click(switch)


def _user_menu(user: DashboardUser) -> None:
    with ui.button(icon="account_circle").props("flat round dense aria-label=Account"):
        with ui.menu():
            ui.label(user.name).classes("p-menu-name")
            ui.menu_item("Sign out", lambda: ui.navigate.to("/sign-out"))
