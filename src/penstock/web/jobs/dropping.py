"""A place to drop files on, or to press and choose them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from typing import Final

from nicegui import events, ui

from penstock.core.units import MiB

MOST_BYTES: Final = 64 * MiB

Taken = Callable[[str, bytes], Awaitable[None]]


def drop_zone(title: str, hint: str, taken: Taken, *, accept: str, several: bool = False) -> None:
    """`taken` is called with the name and the content of each file."""

    async def uploaded(event: events.UploadEventArguments) -> None:
        await taken(event.file.name, await event.file.read())
        zone.reset()

    def rejected() -> None:
        ui.notify(f"{accept} up to {MOST_BYTES // MiB} MB is accepted here", type="negative")

    zone = ui.upload(
        multiple=several,
        auto_upload=True,
        max_file_size=MOST_BYTES,
        on_upload=uploaded,
        on_rejected=rejected,
    )
    zone.props(f'flat bordered accept="{accept}" aria-label="{title}"').classes("p-drop")
    zone.add_slot(
        "header",
        f"""
        <div class="p-drop-in" role="button" tabindex="0" @click="props.pickFiles"
             @keydown.enter="props.pickFiles" aria-label="{escape(title)}: choose a file">
          <q-icon name="upload_file" size="26px"></q-icon>
          <div class="p-h3">{escape(title)}</div>
          <div class="p-muted p-small">{escape(hint)}</div>
          <q-uploader-add-trigger></q-uploader-add-trigger>
        </div>
        """,
    )
    zone.add_slot("list", "<div></div>")
