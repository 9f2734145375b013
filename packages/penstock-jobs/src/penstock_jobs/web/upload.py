"""Upload of files, and the result of their check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Final

from nicegui import events, ui

from penstock.core.units import MiB
from penstock_jobs.errors import DatasetProblem
from penstock_jobs.http.submission import DatasetCheck
from penstock_jobs.science.indicators import column_name

MAX_UPLOAD_BYTES: Final = 64 * MiB

UploadCallback = Callable[[str, bytes], Awaitable[None]]


def drop_zone(
    title: str, hint: str, on_file: UploadCallback, *, accept: str, several: bool = False
) -> None:
    """`on_file` is called with the name and the content of each file."""

    async def uploaded(event: events.UploadEventArguments) -> None:
        await on_file(event.file.name, await event.file.read())
        zone.reset()

    def rejected() -> None:
        kind = "" if accept == "*" else f"{accept} and "
        ui.notify(f"a file must be {kind}at most {MAX_UPLOAD_BYTES // MiB} MB", type="negative")

    zone = ui.upload(
        multiple=several,
        auto_upload=True,
        max_file_size=MAX_UPLOAD_BYTES,
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


_FIRST: Final = 5
_MOST_ROWS: Final = 14
_MOST_PROBLEMS: Final = 60


def show_check(name: str, checked: DatasetCheck) -> None:
    if checked.problems:
        _show_problems(name, checked)
    else:
        counted = (
            f"{checked.samples} samples, {checked.humans} human by their ids;"
            f" {len(checked.indicators)} indicators"
        )
        show_accepted(name, counted)
    if checked.rows:
        with ui.expansion("Contents").props("dense").classes("p-peek") as peek:
            peek.value = bool(checked.problems)
            ui.html(preview(checked.rows, checked.problems), sanitize=False).classes("p-scroll")


def show_accepted(name: str, text: str) -> None:
    with ui.row().classes("p-found good").props("role=status"):
        ui.icon("check_circle")
        ui.label(name).classes("p-h3 p-ellipsis")
        ui.label(text).classes("p-small")


def show_rejected(name: str, text: str) -> None:
    with ui.row().classes("p-found bad").props("role=alert"):
        ui.icon("error_outline")
        ui.label(name).classes("p-h3 p-ellipsis")
        ui.label(text).classes("p-small")


def _show_problems(name: str, checked: DatasetCheck) -> None:
    count = len(checked.problems)
    show_rejected(name, "1 problem" if count == 1 else f"{count} problems")
    items = "".join(
        f"<li><span class='p-place'>{escape(_position(problem))}</span> {escape(problem.text)}</li>"
        for problem in checked.problems[:_MOST_PROBLEMS]
    )
    if count > _MOST_PROBLEMS:
        items += f"<li class='p-muted'>and {count - _MOST_PROBLEMS} more</li>"
    ui.html(f"<ul class='p-problems'>{items}</ul>", sanitize=False).classes("w-full")


def _position(problem: DatasetProblem) -> str:
    row = f"row {problem.row}" if problem.row else ""
    column = f"column {problem.column}" if problem.column else ""
    return " · ".join(part for part in (row, column) if part) or "the file"


def preview(rows: Sequence[Sequence[str]], problems: Sequence[DatasetProblem]) -> str:
    """HTML: the first rows and those with problems, each with its number, bad cells marked."""
    names = [column_name(cell) for cell in rows[0]]
    wrong: dict[int, dict[str, str]] = defaultdict(dict)
    for problem in problems:
        wrong[problem.row][problem.column] = problem.text
    chosen = [at for at in range(2, len(rows) + 1) if at < _FIRST + 2 or at in wrong][:_MOST_ROWS]
    head = "".join(_cell("th", cell, wrong[1].get(names[at])) for at, cell in enumerate(rows[0]))
    lines = [f"<tr><th>1</th>{head}</tr>"]
    before = 1
    for number in chosen:
        if number != before + 1:
            lines.append(f"<tr><td class='p-gap' colspan='{len(names) + 1}'>⋯</td></tr>")
        whole = wrong[number].get("")
        cells = "".join(
            _cell("td", cell, whole or wrong[number].get(names[at] if at < len(names) else ""))
            for at, cell in enumerate(rows[number - 1])
        )
        lines.append(f"<tr><th>{number}</th>{cells}</tr>")
        before = number
    if before < len(rows):
        lines.append(f"<tr><td class='p-gap' colspan='{len(names) + 1}'>⋯</td></tr>")
    return f"<table class='p-cells'>{''.join(lines)}</table>"


def _cell(tag: str, text: str, problem: str | None) -> str:
    if problem is None:
        return f"<{tag}>{escape(text)}</{tag}>"
    return f"<{tag} class='wrong' title='{escape(problem, quote=True)}'>{escape(text)}</{tag}>"
