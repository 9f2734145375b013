"""The page of data sets: rows are typed or pasted into a predefined matrix, and saved."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from nicegui import events, ui
from nicegui.element import Element

from penstock.core.errors import PenstockError
from penstock_jobs.datasets.matrices import DataMatrix, check_rows, rows_of
from penstock_jobs.datasets.repository import SavedDataset
from penstock_jobs.errors import DatasetError, DatasetProblem
from penstock_jobs.science.indicators import column_name
from penstock_jobs.science.matrix import read_csv
from penstock_jobs.service import JobService
from penstock_jobs.web import upload
from penstock_jobs.web.upload import drop_zone
from penstock_store.dashboard.pages import PageRequest

#: More rows are loaded as a CSV.
MAX_TYPED_ROWS: Final = 1_000
#: Data sets in the list.
_SHOWN: Final = 100


class MatrixEditor(Element, component="matrix_editor.js"):
    def __init__(self, changed: Any) -> None:
        super().__init__()
        self.props["most"] = MAX_TYPED_ROWS
        self.on("rows", changed)

    def load(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.props["columns"] = list(columns)
        self.props["rows"] = [list(row) for row in rows]
        self.props["number"] = self.props.get("number", 0) + 1
        self.show_problems(columns, ())

    def show_problems(self, columns: Sequence[str], problems: Sequence[DatasetProblem]) -> None:
        at = {column_name(name): number for number, name in enumerate(columns)}
        self.props["problems"] = {
            f"{each.row - 2},{at.get(each.column, 0)}": each.text for each in problems
        }
        self.update()


class DatasetPage:
    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs
        self._matrices: dict[str, DataMatrix] = {}
        self._rows: list[list[str]] = []

    async def draw(self, visit: PageRequest) -> None:
        found = await asyncio.to_thread(self._jobs.datasets.matrices)
        self._matrices = {each.name: each for each in found}
        with ui.column().classes("p-card w-full gap-3"):
            ui.label("Enter samples").classes("p-h2")
            with ui.row().classes("w-full items-center"):
                titles = {each.name: f"{each.name}: {each.title}" for each in found}
                self._matrix = ui.select(titles, value=found[0].name, label="Matrix")
                self._matrix.props("outlined dense options-dense").classes("p-matrix")
                self._matrix.on_value_change(self._change_matrix)
                self._name = ui.input("Name of the data set").props("outlined dense maxlength=100")
                self._save = ui.button("Save", icon="save", on_click=self._save_version)
                self._save.props("unelevated no-caps")
                self._save.set_visibility(self._jobs.may_submit())
            ui.label(
                "Type or paste rows, as copied from a spreadsheet. A number has a decimal comma or"
                " point; <20 is below detection; an empty cell was not measured."
            ).classes("p-muted p-small")
            self._editor = MatrixEditor(self._change_rows)
            self._check = ui.column().classes("w-full gap-2").props("data-found=rows")
            drop_zone("CSV", "Fills the table from a file", self._read_csv, accept=".csv,.txt")
        if self._jobs.may_operate():
            self._draw_new_matrix()
        self._list = ui.column().classes("p-card w-full gap-2")
        if name := visit.query.get("dataset", ""):
            await self._open(name)
        else:
            self._show([])
        await self._show_saved()

    def _draw_new_matrix(self) -> None:
        with (
            ui.expansion("New matrix", icon="view_column").classes("p-card p-peek"),
            ui.row().classes("w-full items-center pt-2"),
        ):
            name = ui.input("Name of the matrix").props("outlined dense maxlength=100")
            title = ui.input("Title").props("outlined dense maxlength=200")
            columns = ui.input("Columns, with ; between them", value="CLASS;")
            columns.props("outlined dense").classes("p-send-name")

            async def add() -> None:
                names = [each.strip() for each in (columns.value or "").split(";")]
                given = (name.value or "").strip(), (title.value or "").strip()
                await self._add_matrix(*given, [each for each in names if each])

            ui.button("Add", icon="add", on_click=add).props("unelevated no-caps")

    async def _add_matrix(self, name: str, title: str, columns: Sequence[str]) -> None:
        try:
            matrix = DataMatrix(name, title or name, tuple(columns))
            await self._jobs.put_matrix(matrix)
        except (PenstockError, ConnectionError) as error:
            ui.notify(str(error), type="negative")
            return
        self._matrices[name] = matrix
        titles = {each.name: f"{each.name}: {each.title}" for each in self._matrices.values()}
        self._matrix.set_options(titles, value=name)
        self._change_matrix()

    @property
    def _chosen(self) -> DataMatrix:
        return self._matrices[str(self._matrix.value)]

    def _show(self, rows: Sequence[Sequence[str]]) -> None:
        self._drawn = self._chosen
        self._rows = [list(row) for row in rows]
        self._editor.load(self._chosen.columns, rows)
        self._show_check()

    def _change_matrix(self) -> None:
        """The rows stay, where both matrices have the column."""
        cells = {
            column_name(name): tuple(row[at] if at < len(row) else "" for row in self._rows)
            for at, name in enumerate(self._drawn.columns)
        }
        self._show(rows_of(self._chosen, cells))

    def _change_rows(self, event: events.GenericEventArguments) -> None:
        self._rows = [[str(cell) for cell in row] for row in event.args][:MAX_TYPED_ROWS]
        self._show_check()

    def _show_check(self) -> None:
        used = _without_blank_end(self._rows)
        problems = check_rows(self._chosen, used) if used else []
        self._editor.show_problems(self._chosen.columns, problems)
        self._check.clear()
        with self._check:
            if problems:
                count = len(problems)
                text = "1 problem" if count == 1 else f"{count} problems"
                upload.show_rejected("Rows", f"{text}; the first: {problems[0]}")
            elif used:
                count = len(used)
                upload.show_accepted("Rows", "1 sample" if count == 1 else f"{count:,} samples")
        self._save.set_enabled(bool(used) and not problems)

    async def _read_csv(self, name: str, data: bytes) -> None:
        try:
            columns = await asyncio.to_thread(read_csv, data, foreign=True)
        except DatasetError as error:
            self._check.clear()
            with self._check:
                upload.show_rejected(name, str(error))
            return
        names = {column_name(each) for each in self._chosen.columns}
        if left_out := [each for each in columns if each not in names]:
            ui.notify(f"not in the matrix, and left out: {', '.join(left_out)}", type="warning")
        rows = rows_of(self._chosen, columns)
        if len(rows) > MAX_TYPED_ROWS:
            ui.notify(f"the first {MAX_TYPED_ROWS:,} of {len(rows):,} rows", type="warning")
        self._show(rows[:MAX_TYPED_ROWS])

    async def _save_version(self) -> None:
        name = (self._name.value or "").strip()
        rows = _without_blank_end(self._rows)
        try:
            saved = await self._jobs.save_dataset(name, self._chosen, rows)
        except (PenstockError, ConnectionError) as error:
            ui.notify(str(error), type="negative")
            return
        ui.notify(f"saved as version {saved.version} of {saved.name}", type="positive")
        await self._show_saved()

    async def _open(self, reference: str) -> None:
        """A saved version, to go on with."""
        name, _, number = reference.partition("@")
        try:
            versions = await asyncio.to_thread(self._jobs.datasets.versions, name)
            columns = await asyncio.to_thread(self._jobs.datasets.columns, reference)
        except PenstockError as error:
            ui.notify(str(error), type="negative")
            self._show([])
            return
        saved = next((each for each in versions if str(each.version) == number), versions[0])
        self._name.value = name
        if saved.matrix in self._matrices:
            self._matrix.value = saved.matrix
        self._show(rows_of(self._chosen, columns))

    async def _show_saved(self) -> None:
        found = await asyncio.to_thread(self._jobs.datasets.datasets)
        self._list.clear()
        with self._list:
            ui.label("Saved data sets").classes("p-h2")
            if not found:
                ui.label("None yet.").classes("p-muted")
            for each in found[:_SHOWN]:
                self._draw_saved(each)
            if len(found) > _SHOWN:
                ui.label(f"and {len(found) - _SHOWN:,} more").classes("p-muted p-small")

    def _draw_saved(self, saved: SavedDataset) -> None:
        with ui.row().classes("items-center w-full").props(f'data-dataset="{saved.name}"'):
            ui.link(saved.name, f"/datasets?dataset={quote(saved.name)}").classes("p-job-id")
            who = f" · by {saved.saved_by}" if saved.saved_by else ""
            about = f"version {saved.version} · {saved.samples:,} samples · {saved.matrix}{who}"
            ui.label(about).classes("p-muted p-small")
            ui.space()
            for version in range(saved.version, max(saved.version - 3, 0), -1):
                reference = quote(f"{saved.name}@{version}")
                ui.link(f"v{version}", f"/datasets?dataset={reference}").classes("p-accent")
            if self._jobs.may_submit():
                target = f"/jobs?dataset={quote(saved.reference)}"
                ui.link("Predict", target).classes("p-accent")


def _without_blank_end(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Blank rows in between are problems, because the id is missing; those at the end are none."""
    last = max((at for at, row in enumerate(rows, 1) if any(map(str.strip, row))), default=0)
    return [list(row) for row in rows[:last]]
