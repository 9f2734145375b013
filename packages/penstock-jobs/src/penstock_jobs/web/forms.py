"""The submit forms: files are checked on upload, and only valid ones can be submitted."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol
from uuid import uuid4

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats.csv import write_csv
from penstock_jobs.formats.json import read_request, write_request
from penstock_jobs.http import submission
from penstock_jobs.http.submission import DatasetCheck, DatasetPurpose
from penstock_jobs.model import (
    Agings,
    BuildModels,
    CommandRun,
    Dataset,
    Fake,
    JobOptions,
    JobRequest,
    JobState,
    PredictModels,
)
from penstock_jobs.science import model_file, synthetic
from penstock_jobs.service import JobService
from penstock_jobs.web import upload
from penstock_jobs.web.comparison import comparison_address
from penstock_jobs.web.job_row import address
from penstock_jobs.web.upload import drop_zone

#: Saved data sets and built models to choose from.
_LISTED: Final = 50
_ID_LENGTH: Final = 255


class Drawable(Protocol):
    async def draw(self) -> None: ...


def new_name(kind: str) -> str:
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"


class SubmitForm:
    """The id, the options, the submit button, and the submission."""

    def __init__(self, jobs: JobService, kind: str, verb: str) -> None:
        self._jobs = jobs
        self._kind = kind
        self._verb = verb

    def draw(self, make: Callable[[str], Sequence[JobRequest]]) -> None:
        """`make` is called with the id; several requests are compared in the end."""
        options = ui.expansion("Options", icon="tune").props("dense").classes("p-peek")
        with options, ui.row().classes("pt-2"):
            self._priority = ui.number("Priority, 9 is first", value=0, min=0, max=9)
            self._attempts = ui.number("Attempts at most", min=1, max=100)
            self._limit = ui.number("Time limit in seconds", min=0.1)
            self._at = ui.input("Start at", placeholder="2026-12-01T06:00+01:00")
            self._unique = ui.input("Unique key").props("maxlength=255")
            self._unique.tooltip("Refused while another job with this key is unfinished.")
            self._keep = ui.number("Stored for days", placeholder="30", min=0.01, max=3650)
            fields = (self._priority, self._attempts, self._limit)
            for field in (*fields, self._at, self._unique, self._keep):
                field.props("outlined dense").classes("p-choice-wide")
        with ui.row().classes("p-send"):
            self._name = ui.input("Job id", value=new_name(self._kind))
            self._name.props("outlined dense maxlength=255").classes("p-send-name")
            self._button = ui.button(self._verb, icon="send", on_click=lambda: self._send(make))
            self._button.props("unelevated no-caps")

    def set_ready(self, complete: bool) -> None:
        self._button.set_enabled(complete)

    async def _send(self, make: Callable[[str], Sequence[JobRequest]]) -> None:
        name = self._name.value.strip() or new_name(self._kind)
        self._button.disable()
        try:
            options, at = self._options()
            ids = [await self._jobs.submit(each, options, at=at) for each in make(name)]
        except (PenstockError, ConnectionError) as error:
            ui.notify(str(error), type="negative")
            self._button.enable()
        else:
            ui.navigate.to(address(ids[0]) if len(ids) == 1 else comparison_address(ids))

    def _options(self) -> tuple[JobOptions, datetime | None]:
        attempts, limit, days = self._attempts.value, self._limit.value, self._keep.value
        options = JobOptions(
            int(self._priority.value or 0),
            None if attempts is None else int(attempts),
            None if limit is None else float(limit),
            keep=None if days is None else 86_400 * float(days),
            unique=(self._unique.value or "").strip() or None,
        )
        text = (self._at.value or "").strip()
        try:
            return options, datetime.fromisoformat(text).astimezone() if text else None
        except ValueError:
            problem = f"Start at {text!r}: must be a time, as 2026-12-01T06:00+01:00"
            raise JobFormatError(problem) from None


class DatasetUpload:
    """A drop zone for a data set, with the result of its check."""

    def __init__(
        self, jobs: JobService, purpose: DatasetPurpose, on_change: Callable[[], None]
    ) -> None:
        self._jobs = jobs
        self._purpose = purpose
        self._on_change = on_change
        self.check: DatasetCheck | None = None

    async def draw(self, title: str, hint: str, name: str, chosen: str = "") -> None:
        """`chosen` is the reference of a saved data set."""
        saved = await asyncio.to_thread(self._jobs.datasets.datasets)
        names = [each.reference for each in saved[:_LISTED]]
        if chosen and chosen not in names:
            names.insert(0, chosen)
        with ui.column().classes("gap-2"):
            drop_zone(title, hint, self.read, accept=".csv,.txt")
            choice = ui.select(names, label="or a saved data set")
            choice.props("outlined dense options-dense clearable").classes("w-full")
            choice.set_visibility(bool(names))
            self._result = ui.column().classes("w-full gap-2").props(f"data-found={name}")
            choice.on_value_change(lambda event: self._choose(event.value))
        if chosen:
            choice.set_value(chosen)

    async def _choose(self, reference: str | None) -> None:
        if not reference:
            return
        try:
            text = await asyncio.to_thread(self._jobs.datasets.text, reference)
        except (PenstockError, ConnectionError) as error:
            ui.notify(str(error), type="negative")
        else:
            await self.read(reference, text.encode(), foreign=True)

    async def read(self, name: str, data: bytes, *, foreign: bool = False) -> None:
        check = partial(submission.check_dataset, data, self._purpose, foreign=foreign)
        self.check = await asyncio.to_thread(check)
        self._result.clear()
        with self._result:
            upload.show_check(name, self.check)
        self._on_change()

    @property
    def usable(self) -> bool:
        return self.check is not None and self.check.usable

    @property
    def columns(self) -> Dataset:
        assert self.check is not None
        return self.check.columns


class PredictForm:
    """With several models, each is a job, and their results are compared."""

    def __init__(self, jobs: JobService, models_of: str = "", dataset: str = "") -> None:
        self._jobs = jobs
        self._samples = DatasetUpload(jobs, DatasetPurpose.PREDICT, self._update_button)
        self._models: dict[str, bytes] = {}
        self._chosen = models_of
        self._dataset = dataset
        self._form = SubmitForm(jobs, "predict", "Predict")

    async def draw(self) -> None:
        built = await self._jobs.list(1, _LISTED, JobState.DONE, "build_models")
        names = [record.id for record in built.records]
        if self._chosen and self._chosen not in names:
            names.insert(0, self._chosen)
        with ui.element("div").classes("p-columns"):
            hint = "A CSV with ; between cells: CLASS and the indicators"
            # The button is there before a chosen data set enables it.
            place = ui.element("div")
            with ui.column().classes("gap-2"):
                hint_models = "The zip of a model building job"
                drop_zone("Models", hint_models, self._upload_models, accept=".zip")
                choice = ui.select(names, label="or the models of finished jobs", multiple=True)
                choice.props("outlined dense options-dense clearable use-chips").classes("w-full")
                choice.set_visibility(bool(names))
                self._models_check = ui.column().classes("w-full gap-2")
                choice.on_value_change(lambda event: self._choose(event.value or ()))
        with ui.row().classes("items-center"):
            button = ui.button("Use synthetic samples", icon="science")
            button.on_click(self._use_synthetic).props("flat dense no-caps")
        self._form.draw(self._requests)
        with place:
            await self._samples.draw("Samples", hint, "samples", self._dataset)
        self._update_button()
        if self._chosen:
            choice.set_value([self._chosen])

    async def _upload_models(self, name: str, data: bytes) -> None:
        await self._check_models(name, data, self._forget_models())

    def _forget_models(self) -> dict[str, bytes]:
        """The models of the next choice. An earlier choice that is still being read has its own."""
        self._models = {}
        self._models_check.clear()
        return self._models

    async def _check_models(self, name: str, data: bytes, models: dict[str, bytes]) -> None:
        try:
            model = await asyncio.to_thread(model_file.load_model, data)
        except PenstockError as error:
            show = partial(upload.show_rejected, name, str(error))
        else:
            count = sum(len(bag) for bag in model.bags.values())
            text = f"{count} signatures from {len(model.matrix)} samples"
            show = partial(upload.show_accepted, name, text)
            models[name] = data
        if models is self._models:
            with self._models_check:
                show()
        self._update_button()

    async def _choose(self, ids: Sequence[str]) -> None:
        models = self._forget_models()
        self._update_button()
        for each in ids:
            try:
                data = (await self._jobs.result(each)).models
            except (PenstockError, ConnectionError) as error:
                ui.notify(str(error), type="negative")
            else:
                await self._check_models(each, data, models)

    async def _use_synthetic(self) -> None:
        text = write_csv(synthetic.test_columns(1))
        await self._samples.read("synthetic samples", text.encode())

    def _update_button(self) -> None:
        self._form.set_ready(self._samples.usable and bool(self._models))

    def _requests(self, name: str) -> list[JobRequest]:
        """With several models, the name of each is part of its id, for the comparison."""
        several = len(self._models) > 1
        return [
            PredictModels(
                f"{name}.{models}"[:_ID_LENGTH] if several else name, self._samples.columns, data
            )
            for models, data in self._models.items()
        ]


class BuildForm:
    def __init__(self, jobs: JobService) -> None:
        self._reference = DatasetUpload(jobs, DatasetPurpose.BUILD, self._update_button)
        self._files: dict[str, bytes] = {}
        self._agings: Agings = {}
        self._form = SubmitForm(jobs, "build", "Build models")

    async def draw(self) -> None:
        with ui.element("div").classes("p-columns"):
            hint = "A CSV of samples with their origin in the id, as P1-HM04"
            await self._reference.draw("Reference samples", hint, "reference")
            with ui.column().classes("gap-2"):
                hint = "Files env<NAME>-<SEASON>.txt, or a zip of them"
                drop_zone(
                    "Ageing trials", hint, self._check_trials, accept=".txt,.zip", several=True
                )
                self._trials_check = ui.column().classes("w-full gap-2")
        button = ui.button("Use synthetic data", icon="science", on_click=self._use_synthetic)
        button.props("flat dense no-caps").classes("self-start")
        self._form.draw(lambda name: [self._request(name)])
        self._update_button()

    async def _check_trials(self, name: str, data: bytes) -> None:
        self._files[name] = data
        try:
            self._agings = submission.read_agings(self._files)
        except PenstockError as error:
            del self._files[name]
            self._trials_check.clear()
            with self._trials_check:
                upload.show_rejected(name, str(error))
        else:
            self._show_trials()
        self._update_button()

    def _show_trials(self) -> None:
        trials = sum(len(aging.trials) for each in self._agings.values() for aging in each)
        self._trials_check.clear()
        with self._trials_check:
            upload.show_accepted("Trials", f"{trials} of {len(self._agings)} indicators")

    async def _use_synthetic(self) -> None:
        text = write_csv(synthetic.reference_columns(1))
        await self._reference.read("synthetic reference", text.encode())
        self._agings = synthetic.agings(1)
        self._show_trials()
        self._update_button()

    def _update_button(self) -> None:
        self._form.set_ready(self._reference.usable and bool(self._agings))

    def _request(self, name: str) -> JobRequest:
        return BuildModels(name, self._reference.columns, self._agings)


class CommandForm:
    """A program that a worker allows, with its arguments and files."""

    def __init__(self, jobs: JobService) -> None:
        self._files: dict[str, bytes] = {}
        self._form = SubmitForm(jobs, "command", "Run")

    async def draw(self) -> None:
        ui.label(
            "A program that a worker allows (--program). Its output is shown while it runs."
        ).classes("p-muted")
        line = ui.input("Program and arguments", placeholder="/usr/bin/wc -l data.csv")
        line.props("outlined dense").classes("w-full")
        hint = "For the working directory of the program, by their names"
        drop_zone("Files", hint, self._add_file, accept="*", several=True)
        self._shown = ui.column().classes("w-full gap-2").props("data-found=files")

        def make(name: str) -> JobRequest:
            request = CommandRun(name, _words(line.value or ""), self._files)
            return read_request(write_request(request))

        self._form.draw(lambda name: [make(name)])

    async def _add_file(self, name: str, data: bytes) -> None:
        known = name in self._files
        self._files[name] = data
        if not known:
            with self._shown:
                upload.show_accepted(name, f"{len(data):,} bytes")


class CallForm:
    """A Python function that a worker allows: `call`, or `spark` with a session."""

    def __init__(self, jobs: JobService, kind: str) -> None:
        self._kind = kind
        self._form = SubmitForm(jobs, kind, "Call")

    async def draw(self) -> None:
        options = "--allow" if self._kind == "call" else "--allow and --spark"
        session = "" if self._kind == "call" else " Its first argument is the Spark session."
        ui.label(
            f"A Python function that a worker allows ({options}).{session} What it prints is shown"
            " while it runs."
        ).classes("p-muted")
        with ui.row().classes("w-full items-center"):
            function = ui.input("Function", placeholder="reports:monthly")
            arguments = ui.input("Arguments, a JSON list", value="[]")
            keywords = ui.input("Keyword arguments, a JSON object", value="{}")
            for field in (function, arguments, keywords):
                field.props("outlined dense").classes("grow")

        def make(name: str) -> JobRequest:
            values = {
                "id": name,
                "type": self._kind,
                "function": (function.value or "").strip(),
                "arguments": _json(arguments.value, list, "Arguments"),
                "keywords": _json(keywords.value, dict, "Keyword arguments"),
            }
            return read_request(json.dumps(values).encode())

        self._form.draw(lambda name: [make(name)])


def _words(line: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise JobFormatError(f"Program and arguments: {error}") from error
    if not words:
        raise JobFormatError("Program and arguments: nothing to run")
    return words


def _json(text: str | None, kind: type, name: str) -> object:
    try:
        value = json.loads(text or "null")
    except ValueError as error:
        raise JobFormatError(f"{name}: {error}") from error
    if not isinstance(value, kind):
        raise JobFormatError(f"{name}: must be a JSON {'list' if kind is list else 'object'}")
    return value


class FakeForm:
    def __init__(self, jobs: JobService) -> None:
        self._form = SubmitForm(jobs, "trial", "Start")

    async def draw(self) -> None:
        ui.label(
            "A job that only takes time and reports progress, to test that the broker, a worker and"
            " this page are connected."
        ).classes("p-muted")
        with ui.row():
            duration = ui.number("Duration in seconds", value=10, min=0, max=3600)
            interval = ui.number("Seconds between progress reports", value=1, min=0.1, max=60)
            for field in (duration, interval):
                field.props("outlined dense")
        self._form.draw(
            lambda name: [Fake(name, float(duration.value or 0), float(interval.value or 1))]
        )
