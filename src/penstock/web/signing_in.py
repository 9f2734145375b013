"""The page that asks who somebody is, where there is a gate."""

from __future__ import annotations

from typing import Final

from nicegui import app, ui
from starlette.requests import Request

from penstock.web.frame import logo
from penstock.web.gate import Gate, local_path

PATH: Final = "/sign-in"


def install(gate: Gate, key: str) -> None:
    """`key` is where a session has the person's id."""

    async def page(request: Request) -> None:
        target = local_path(request.query_params.get("next", "/"))

        async def sign_in() -> None:
            person = await gate.admit(name.value.strip(), password.value)
            if person is None:
                wrong.set_visibility(True)
                password.set_value("")
                return
            app.storage.user[key] = person.id
            ui.navigate.to(target)

        with ui.column().classes("p-card p-sign-in"):
            logo()
            ui.label("Sign in").classes("p-h2")
            name = ui.input("Name").props("outlined autofocus autocomplete=username")
            password = ui.input("Password", password=True, password_toggle_button=True)
            password.props("outlined autocomplete=current-password")
            password.on("keydown.enter", sign_in)
            wrong = ui.label("That is not the name and password of an account here.")
            wrong.classes("p-bad-text").props("role=alert")
            wrong.set_visibility(False)
            ui.button("Sign in", on_click=sign_in).props("unelevated no-caps")

    def sign_out() -> None:
        app.storage.user.pop(key, None)
        ui.navigate.to(PATH)

    ui.page(PATH, title="Sign in · Penstock")(page)
    ui.page("/sign-out", title="Signed out · Penstock")(sign_out)
