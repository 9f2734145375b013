"""Handing in: what is dropped is checked at once, and only what can be used can be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol
from uuid import uuid4

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock_jobs.http import submission
from penstock_jobs.http.submission import DatasetCheck, DatasetPurpose
from penstock_jobs.model import Agings, BuildModels, Fake, JobRequest, JobState, PredictModels
from penstock_jobs.science import model_file, synthetic
from penstock_jobs.service import JobBackend
from penstock_jobs.web import upload
from penstock_jobs.web.job_row import address
from penstock_jobs.web.upload import drop_zone

_TRIALS = ".txt,.zip"


class Drawable(Protocol):
    async def draw(self) -> None: ...


def new_name(kind: str) -> str:
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"


class SubmitForm:
    """What all drafts have: a name, a button that is there when everything is, and a way out."""

    def __init__(self, backend: JobBackend, kind: str, verb: str) -> None:
        self._backend = backend
        self._kind = kind
        self._verb = verb

    def sending(self, make: Callable[[str], JobRequest]) -> None:
        with ui.row().classes("p-send"):
            self._name = ui.input("Name of the job", value=new_name(self._kind))
            self._name.props("outlined dense maxlength=255").classes("p-send-name")
            self._button = ui.button(self._verb, icon="send", on_click=lambda: self._send(make))
            self._button.props("unelevated no-caps")

    def ready(self, complete: bool) -> None:
        self._button.set_enabled(complete)

    async def _send(self, make: Callable[[str], JobRequest]) -> None:
        name = self._name.value.strip() or new_name(self._kind)
        self._button.disable()
        try:
            await self._backend.submit(make(name))
        except (PenstockError, ConnectionError) as error:
            ui.notify(str(error), type="negative")
            self._button.enable()
        else:
            ui.navigate.to(address(name))


class PredictForm:
    """Samples and models."""

    def __init__(self, backend: JobBackend, models_of: str = "") -> None:
        self._backend = backend
        self._samples: DatasetCheck | None = None
        self._models = b""
        self._chosen = models_of
        self._draft = SubmitForm(backend, "predict", "Predict")

    async def draw(self) -> None:
        built = await self._backend.list(1, 50, JobState.DONE, "build_models")
        names = [record.id for record in built.records]
        if self._chosen and self._chosen not in names:
            names.insert(0, self._chosen)
        with ui.element("div").classes("p-columns"):
            with ui.column().classes("gap-2"):
                drop_zone(
                    "Samples",
                    "A CSV with ; between cells: CLASS and what was counted",
                    self._take_samples,
                    accept=".csv,.txt",
                )
                self._found = ui.column().classes("w-full gap-2").props("data-found=samples")
            with ui.column().classes("gap-2"):
                drop_zone("Models", "The zip that a build gave", self._take_models, accept=".zip")
                choice = ui.select(names, label="or those of a finished build")
                choice.props("outlined dense options-dense clearable").classes("w-full")
                choice.set_visibility(bool(names))
                self._models_found = ui.column().classes("w-full gap-2")
                choice.on_value_change(lambda event: self._choose(event.value))
        with ui.row().classes("items-center"):
            trial = ui.button("Use made-up samples", icon="science", on_click=self._made_up)
            trial.props("flat dense no-caps")
        self._draft.sending(self._request)
        self._judge()
        if self._chosen:
            choice.set_value(self._chosen)

    async def _take_samples(self, name: str, data: bytes) -> None:
        self._samples = await asyncio.to_thread(
            submission.check_dataset, data, DatasetPurpose.PREDICT
        )
        self._found.clear()
        with self._found:
            upload.show_check(name, self._samples)
        self._judge()

    async def _take_models(self, name: str, data: bytes) -> None:
        self._models = b""
        self._models_found.clear()
        with self._models_found:
            try:
                model = await asyncio.to_thread(model_file.load_model, data)
            except PenstockError as error:
                upload.show_rejected(name, str(error))
            else:
                self._models = data
                count = sum(len(bag) for bag in model.bags.values())
                upload.show_accepted(name, f"{count} signatures from {len(model.matrix)} samples")
        self._judge()

    async def _choose(self, id: str | None) -> None:  # noqa: A002 - as records have it
        if not id:
            return
        try:
            data = (await self._backend.result(id)).models
        except (PenstockError, ConnectionError) as error:
            ui.notify(str(error), type="negative")
        else:
            await self._take_models(id, data)

    async def _made_up(self) -> None:
        text = synthetic.csv_text(synthetic.test_columns(1))
        await self._take_samples("made-up samples", text.encode())

    def _judge(self) -> None:
        usable = self._samples is not None and not self._samples.problems
        self._draft.ready(usable and bool(self._models))

    def _request(self, name: str) -> JobRequest:
        assert self._samples is not None
        return PredictModels(name, self._samples.columns, self._models)


class BuildForm:
    """Samples of known origin, and trials of how indicators fade."""

    def __init__(self, backend: JobBackend) -> None:
        self._reference: DatasetCheck | None = None
        self._files: dict[str, bytes] = {}
        self._agings: Agings = {}
        self._draft = SubmitForm(backend, "build", "Build models")

    async def draw(self) -> None:
        with ui.element("div").classes("p-columns"):
            with ui.column().classes("gap-2"):
                drop_zone(
                    "Reference samples",
                    "A CSV of samples whose origin their ids tell, as P1-HM04",
                    self._take_reference,
                    accept=".csv,.txt",
                )
                self._found = ui.column().classes("w-full gap-2").props("data-found=reference")
            with ui.column().classes("gap-2"):
                drop_zone(
                    "Ageing trials",
                    "Files env<NAME>-<SEASON>.txt, or a zip of them",
                    self._take_trials,
                    accept=_TRIALS,
                    several=True,
                )
                self._trials_found = ui.column().classes("w-full gap-2")
        trial = ui.button("Use made-up data", icon="science", on_click=self._made_up)
        trial.props("flat dense no-caps").classes("self-start")
        self._draft.sending(self._request)
        self._judge()

    async def _take_reference(self, name: str, data: bytes) -> None:
        self._reference = await asyncio.to_thread(
            submission.check_dataset, data, DatasetPurpose.BUILD
        )
        self._found.clear()
        with self._found:
            upload.show_check(name, self._reference)
        self._judge()

    async def _take_trials(self, name: str, data: bytes) -> None:
        self._files[name] = data
        try:
            found = submission.read_agings(self._files)
        except PenstockError as error:
            del self._files[name]
            self._tell_trials(name, str(error), wrong=True)
        else:
            self._agings = found
            self._tell_trials(*_counted(found))
        self._judge()

    def _tell_trials(self, name: str, text: str, wrong: bool = False) -> None:
        self._trials_found.clear()
        with self._trials_found:
            (upload.show_rejected if wrong else upload.show_accepted)(name, text)

    async def _made_up(self) -> None:
        text = synthetic.csv_text(synthetic.reference_columns(1))
        await self._take_reference("made-up reference", text.encode())
        self._agings = synthetic.agings(1)
        self._tell_trials(*_counted(self._agings))
        self._judge()

    def _judge(self) -> None:
        usable = self._reference is not None and not self._reference.problems
        self._draft.ready(usable and bool(self._agings))

    def _request(self, name: str) -> JobRequest:
        assert self._reference is not None
        return BuildModels(name, self._reference.columns, self._agings)


class FakeForm:
    """Work that only takes time: to see that everything is connected."""

    def __init__(self, backend: JobBackend) -> None:
        self._draft = SubmitForm(backend, "trial", "Start")

    async def draw(self) -> None:
        ui.label(
            "Work that only takes time and tells how much of it has gone: shows that broker,"
            " worker and page are connected."
        ).classes("p-muted")
        with ui.row():
            duration = ui.number("Seconds it takes", value=10, min=0, max=3600)
            interval = ui.number("Seconds between reports", value=1, min=0.1, max=60)
            for field in (duration, interval):
                field.props("outlined dense")
        self._draft.sending(
            lambda name: Fake(name, float(duration.value or 0), float(interval.value or 1))
        )


def _counted(agings: Agings) -> tuple[str, str]:
    trials = sum(len(aging.trials) for each in agings.values() for aging in each)
    return "Trials", f"{trials} of {len(agings)} indicators"
