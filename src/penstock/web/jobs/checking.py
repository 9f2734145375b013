"""A data set that was handed in, as it was found: what is in it, or what is wrong and where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Final

from nicegui import ui

from penstock.jobs.errors import Problem
from penstock.jobs.http.intake import Checked
from penstock.jobs.science.indicators import column_name

_FIRST: Final = 5
_MOST_ROWS: Final = 14
_MOST_PROBLEMS: Final = 60


def show(name: str, checked: Checked) -> None:
    if checked.problems:
        _wrong(name, checked)
    else:
        counted = (
            f"{checked.samples} samples, {checked.humans} of them human by their ids;"
            f" {len(checked.indicators)} indicators"
        )
        good(name, counted)
    if checked.rows:
        with ui.expansion("What is in it").props("dense").classes("p-peek") as peek:
            peek.value = bool(checked.problems)
            ui.html(preview(checked.rows, checked.problems), sanitize=False).classes("p-scroll")


def good(name: str, text: str) -> None:
    with ui.row().classes("p-found good").props("role=status"):
        ui.icon("check_circle")
        ui.label(name).classes("p-h3 p-ellipsis")
        ui.label(text).classes("p-small")


def bad(name: str, text: str) -> None:
    with ui.row().classes("p-found bad").props("role=alert"):
        ui.icon("error_outline")
        ui.label(name).classes("p-h3 p-ellipsis")
        ui.label(text).classes("p-small")


def _wrong(name: str, checked: Checked) -> None:
    count = len(checked.problems)
    bad(name, "one thing has to be mended" if count == 1 else f"{count} things have to be mended")
    items = "".join(
        f"<li><span class='p-place'>{escape(_place(problem))}</span> {escape(problem.text)}</li>"
        for problem in checked.problems[:_MOST_PROBLEMS]
    )
    if count > _MOST_PROBLEMS:
        items += f"<li class='p-muted'>and {count - _MOST_PROBLEMS} more</li>"
    ui.html(f"<ul class='p-problems'>{items}</ul>", sanitize=False).classes("w-full")


def _place(problem: Problem) -> str:
    row = f"row {problem.row}" if problem.row else ""
    column = f"column {problem.column}" if problem.column else ""
    return " · ".join(part for part in (row, column) if part) or "the file"


def preview(rows: Sequence[Sequence[str]], problems: Sequence[Problem]) -> str:
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
