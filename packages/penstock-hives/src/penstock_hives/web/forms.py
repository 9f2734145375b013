"""Forms: fields of a request body, with errors beside them.

    form = EditForm(NewDeal, save)
    form.text("title", "Title")
    form.choice("kind", "Kind", {"daily": "Daily"})
    form.submit_button("Create")

Values are validated by the request body of the API, then given to `save`, which calls the same
service as the API. Errors that name a field are shown at the field, others above the button.

A form is submitted over the page's WebSocket. Its id is known to the page only, so another site
cannot submit it for a signed-in user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement
from pydantic import BaseModel, ValidationError

from penstock.core.errors import PenstockError
from penstock_hives.errors import InvalidRequest

Body = TypeVar("Body", bound=BaseModel)
Read = Callable[[Any], Any]


class EditForm(Generic[Body]):
    def __init__(self, body: type[Body], save: Callable[[Body], Awaitable[object]]) -> None:
        self._body = body
        self._save = save
        self._readers: dict[str, Callable[[], Any]] = {}
        self._fields: dict[str, ValueElement[Any]] = {}
        self._alert: ui.label | None = None

    def add(self, name: str, field: ValueElement[Any], read: Read = lambda value: value) -> None:
        """A field of the body; `address.city` is a member of `address`."""
        self._fields[name] = field
        self._readers[name] = lambda: read(field.value)

    def add_group(self, name: str, read: Callable[[], Any]) -> None:
        """A field of the body that several inputs make up; `mark` names them for errors."""
        self._readers[name] = read

    def mark(self, name: str, field: ValueElement[Any]) -> None:
        self._fields[name] = field

    def text(self, name: str, label: str, value: str = "", hint: str = "") -> ui.input:
        field = ui.input(label, value=value).props("outlined dense").classes("w-full")
        _mark(field, name, hint)
        self.add(name, field, lambda given: given or "")
        return field

    def area(self, name: str, label: str, value: str = "") -> ui.textarea:
        field = ui.textarea(label, value=value).props("outlined dense autogrow").classes("w-full")
        _mark(field, name)
        self.add(name, field, lambda given: given or "")
        return field

    def number(
        self, name: str, label: str, value: float | None = None, hint: str = "", whole: bool = True
    ) -> ui.number:
        field = ui.number(label, value=value, precision=0 if whole else None)
        field.props("outlined dense").classes("w-full")
        _mark(field, name, hint)
        self.add(name, field, int_or_same if whole else lambda given: given)
        return field

    def choice(
        self, name: str, label: str, options: Mapping[Any, str], value: Any = None
    ) -> ui.select:
        field = ui.select(dict(options), label=label, value=value)
        field.props("outlined dense options-dense").classes("w-full")
        _mark(field, name)
        self.add(name, field)
        return field

    def choices(
        self, name: str, label: str, options: Mapping[Any, str], value: Sequence[Any] = ()
    ) -> ui.select:
        field = ui.select(dict(options), label=label, value=list(value), multiple=True)
        field.props("outlined dense options-dense use-chips").classes("w-full")
        _mark(field, name)
        self.add(name, field)
        return field

    def switch(self, name: str, label: str, value: bool = False) -> ui.switch:
        field = ui.switch(label, value=value)
        field.props["data-field"] = name
        self.add(name, field)
        return field

    def moment(self, name: str, label: str, value: str, read: Read) -> ui.input:
        """Local date and time, as `2026-12-24T18:00`."""
        field = ui.input(label, value=value).props("outlined dense stack-label").classes("w-full")
        field.props("type=datetime-local")
        _mark(field, name)
        self.add(name, field, read)
        return field

    def submit_button(self, label: str = "Save") -> ui.button:
        self._alert = ui.label().classes("p-bad-text").props("role=alert")
        self._alert.set_visibility(False)
        return ui.button(label, on_click=self.submit).props("unelevated no-caps type=submit")

    async def submit(self) -> None:
        self._clear()
        try:
            body = self._body.model_validate(self._values())
            await self._save(body)
        except ValidationError as error:
            self._show({_place(each["loc"]): _reason(each) for each in error.errors()})
        except InvalidRequest as error:
            named = {each.field: each.reason for each in error.errors}
            self._show(named or {"": str(error)})
        except (PenstockError, ValueError) as error:
            self._show({"": str(error)})

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, read in self._readers.items():
            group, dot, member = name.partition(".")
            given = read()
            if dot:
                values.setdefault(group, {})[member] = given
            else:
                values[name] = given
        return values

    def _clear(self) -> None:
        for field in self._fields.values():
            if hasattr(field, "error"):
                field.error = None
        if self._alert is not None:
            self._alert.set_visibility(False)

    def _show(self, errors: Mapping[str, str]) -> None:
        rest = []
        for name, reason in errors.items():
            parts = name.split(".")
            places = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
            found = next((self._fields[each] for each in places if each in self._fields), None)
            if found is not None and hasattr(found, "error"):
                found.error = reason
            else:
                rest.append(f"{name} {reason}".strip())
        if rest and self._alert is not None:
            self._alert.set_text("; ".join(rest))
            self._alert.set_visibility(True)


def _mark(field: ui.element, name: str, hint: str = "") -> None:
    """Quasar shows an error under the field and describes it to screen readers."""
    field.props["data-field"] = name
    if hint:
        field.props["hint"] = hint


def int_or_same(value: Any) -> Any:
    """A whole number as an integer; anything else is for the validation to refuse."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _place(location: Sequence[Any]) -> str:
    return ".".join(str(part) for part in location if part not in ("[key]",))


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "string_too_short" or error["input"] in (None, ""):
        return "must be given"
    if error["type"] == "string_pattern_mismatch":
        return "is not valid"
    text = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return text.replace("should be", "must be").replace("should have", "must have")


async def act(work: Callable[[], Awaitable[object]], then: str, done: str = "") -> None:
    """Do something for a button; then open a page, or say that it is done."""
    try:
        await work()
    except PenstockError as error:
        ui.notify(str(error), type="negative")
        return
    if done:
        ui.notify(done, type="positive")
    if then:
        ui.navigate.to(then)


def ask(question: str, label: str, work: Callable[[], Awaitable[object]], then: str) -> ui.dialog:
    """A dialog for what cannot be undone."""
    with ui.dialog() as dialog, ui.card().classes("p-card"):
        ui.label(question).classes("p-h3")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")

            async def confirmed() -> None:
                dialog.close()
                await act(work, then)

            ui.button(label, on_click=confirmed).props("unelevated no-caps color=negative")
    return dialog
