"""`/hives/new` and `/hives/place/{id}/edit`: a place, its hours, its address and its pictures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, Final
from zoneinfo import available_timezones

from nicegui import ui
from nicegui.events import UploadEventArguments
from starlette.responses import PlainTextResponse, Response

from penstock.core.errors import ContentTooLarge, NotFound, PenstockError
from penstock.core.units import parse_count
from penstock_hives.api.fields import fields_set
from penstock_hives.images.models import HiveImage, ImageKind
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.endpoints import HiveEdit, NewHive
from penstock_hives.places.models import HiveAddress, HiveChange, HiveSettings
from penstock_hives.places.opening_fields import OpeningFields
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm, act, ask
from penstock_store.dashboard.pages import PageRequest

_FORMATS: Final = ".jpg,.jpeg,.png,.webp,.gif"


@lru_cache
def time_zones() -> dict[str, str]:
    names = sorted(name for name in available_timezones() if "/" in name and name[0].isupper())
    return {name: name.replace("_", " ") for name in ("UTC", *names) if "Etc/" not in name}


async def draw_new_place(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    view.caller.require(AppPermission.EDIT_HIVES, view.account.id)

    async def save(body: NewHive) -> None:
        made = await context.services.hives.open(view.caller, view.account.id, _change(body))
        ui.navigate.to(f"/hives/place/{made.id}/edit")

    form = EditForm(NewHive, save)
    ui.label(f"A place of {view.account.name}.").classes("p-muted")
    await _fields(context, form, None, view.account.time_zone)
    with ui.row():
        form.submit_button("Create the place")


async def draw_edit_place(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller, hive = await context.hive(visit)
    caller.require(AppPermission.EDIT_HIVES, hive.account_id)
    visit.set_title(f"Edit {hive.name}")
    back = f"/hives/place/{hive.id}"

    async def save(body: HiveEdit) -> None:
        await context.services.hives.edit(caller, hive.id, _change(body))
        ui.navigate.to(back)

    ui.link("To the place", back).classes("p-accent")
    form = EditForm(HiveEdit, save)
    await _fields(context, form, hive, hive.time_zone)
    with ui.row().classes("items-center"):
        form.submit_button()
        close = partial(context.services.hives.close, caller, hive.id)
        question = f"Close {hive.name}? It is hidden and no longer counted; its data stays."
        dialog = ask(question, "Close the place", close, "/hives")
        ui.button("Close the place", on_click=dialog.open).props("flat no-caps color=negative")
    await Pictures(context, caller, hive).draw()


async def _fields(
    context: DashboardContext, form: EditForm[Any], hive: HiveSettings | None, zone: str
) -> None:
    types = {each.code: each.name for each in await context.services.hives.types()}
    address = (hive.address if hive else None) or HiveAddress()
    with ui.element("div").classes("p-columns"):
        with components.card("The place"):
            form.text("name", "Name", hive.name if hive else "")
            form.choice("type", "Type", types, hive.type if hive else next(iter(types), None))
            form.area("description", "Description", hive.description if hive else "")
            form.number(
                "capacity",
                "Capacity",
                hive.capacity if hive else None,
                "People it holds. Without it there are numbers but no levels.",
            )
            form.switch("public", "On the public page", hive.public if hive else True)
            form.switch("badge", "Other sites may embed its occupancy", bool(hive and hive.badge))
        with components.card("Address"):
            form.text("address.street", "Street", address.street)
            with ui.element("div").classes("h-dates"):
                form.text("address.zip", "ZIP code", address.zip)
                form.text("address.city", "Town", address.city)
                country = form.text("address.country", "Country", address.country, "As DE or US.")
                form.add("address.country", country, lambda text: (text or "").strip().upper())
            with ui.element("div").classes("h-dates"):
                form.number("address.lat", "Latitude", address.lat, whole=False)
                form.number("address.lon", "Longitude", address.lon, whole=False)
            field = ui.select(
                {**time_zones(), zone: zone.replace("_", " ")},
                label="Time zone",
                value=zone,
                with_input=True,
            )
            field.props("outlined dense options-dense").classes("w-full")
            form.add("time_zone", field)
    with components.card("Opening hours", "In local time, as 09:00-12:00, 13:00-18:00."):
        OpeningFields(form, hive.opening_hours if hive else {})
        clock = ui.input("Nightly reset", value=f"{hive.reset_time:%H:%M}" if hive else "04:00")
        clock.props("type=time outlined dense stack-label").classes("h-clock")
        clock.props["hint"] = "When nobody is inside, whatever was counted."
        form.add("reset_time", clock)


def _change(body: NewHive | HiveEdit) -> HiveChange:
    values = fields_set(body)
    address = values.pop("address", None)
    if address is not None and not any(address.values()):
        address = None
    return HiveChange(values, address)


#: The uploader takes no files while it sends some: the dialog opens then.
_PICK: Final = """() => {
    const uploader = getElement(%d).$refs.qRef;
    const pick = () => uploader.canAddFiles ? uploader.pickFiles() : setTimeout(pick, 50);
    pick();
}"""


class Pictures:
    """The pictures of a place; a change is applied at once."""

    def __init__(self, context: DashboardContext, caller: Caller, hive: HiveSettings) -> None:
        self._context = context
        self._caller = caller
        self._hive = hive

    async def draw(self) -> None:
        about = "JPEG, PNG, WebP or GIF. Metadata such as positions is removed."
        with components.card("Pictures", about):
            self._list = ui.element("div").classes("h-pictures")
            limit = self._context.resources.settings.image_bytes
            upload = ui.upload(
                multiple=True,
                auto_upload=True,
                max_file_size=limit,
                on_upload=self._upload,
                on_rejected=lambda: ui.notify(
                    f"at most {limit // 1_048_576} MB a picture", type="negative"
                ),
            ).props(f'accept="{_FORMATS}"')
            upload.style("display: none")  # its parts have no names; the button opens it
            choose = ui.button("Add pictures", icon="add").props("outline no-caps")
            choose.on("click", js_handler=_PICK % upload.id)
            await self._show()

    async def _show(self) -> None:
        images = await self._context.services.images.of_hive(self._hive.id)
        self._list.clear()
        with self._list:
            for image in images:
                self._draw(image)

    def _draw(self, image: HiveImage) -> None:
        services = self._context.services.images
        with ui.element("figure").classes("h-picture"):
            picture = ui.image(f"/hives/picture/{image.id}")
            picture.props["alt"] = image.caption or f"Picture of {self._hive.name}"
            with ui.row().classes("items-center no-wrap w-full justify-between"):
                if image.kind == ImageKind.COVER:
                    components.pill("cover", "good")
                else:
                    cover = {"kind": ImageKind.COVER.value}
                    ui.button(
                        "Make it the cover",
                        on_click=partial(
                            self._do, partial(services.edit, self._caller, image.id, cover)
                        ),
                    ).props("flat dense no-caps")
                ui.button(
                    icon="delete",
                    on_click=partial(self._do, partial(services.remove, self._caller, image.id)),
                ).props('flat round dense aria-label="Remove the picture"')

    async def _upload(self, event: UploadEventArguments) -> None:
        async def add() -> None:
            if event.file.size() > self._context.resources.settings.image_bytes:
                raise ContentTooLarge("the picture is too large")
            content = await event.file.read()
            await self._context.services.images.add(
                self._caller, self._hive.id, content, ImageKind.SECONDARY, ""
            )

        await self._do(add)

    async def _do(self, work: Callable[[], Awaitable[object]]) -> None:
        await act(work, "")
        await self._show()


def picture_file(context: DashboardContext) -> Callable[[PageRequest], Awaitable[Response]]:
    async def answer(visit: PageRequest) -> Response:
        number = parse_count(visit.parameters["id"])
        try:
            if number is None:
                raise NotFound("no such picture")
            caller = await context.caller(visit.user)
            content, mime = await context.services.images.own_content(caller, number)
        except PenstockError as error:
            return PlainTextResponse(str(error), 404)
        headers = {"cache-control": "private, max-age=3600", "x-content-type-options": "nosniff"}
        return Response(content, 200, headers, mime)

    return answer
