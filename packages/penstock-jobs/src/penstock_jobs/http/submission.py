"""Requests from HTTP bodies: JSON, the XML and MIME of the Ichnaea clients, or a form with files.

The format of the first three is detected, whatever the content type. A request without an id gets
one. Files of a form are checked at once: all problems of a data set are reported together, each
with its row and column. Large bodies are parsed in a thread.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from starlette.datastructures import UploadFile
from starlette.requests import Request as HttpRequest

from penstock.core.errors import ConfigurationError, Unsupported
from penstock.core.units import MiB
from penstock_jobs import archive
from penstock_jobs.errors import DatasetError, DatasetProblem, JobFormatError
from penstock_jobs.formats import MessageFormat, read_request
from penstock_jobs.http.schemas import ID_PATTERN
from penstock_jobs.model import Aging, Agings, BuildModels, Dataset, JobRequest, PredictModels
from penstock_jobs.science import model_file
from penstock_jobs.science.decay import parse_file_name, read_trials
from penstock_jobs.science.indicators import ANIMAL, HUMAN, INDICATORS
from penstock_jobs.science.matrix import SampleMatrix, decode_text, prepare, read_csv
from penstock_jobs.science.model import FOLDS
from penstock_jobs.service import JobService

FORM_MEDIA_TYPE: Final = "multipart/form-data"
#: Enough for the trials of each indicator in each season.
MAX_FILES: Final = 200
MAX_FIELDS: Final = 20
#: How far an empty object is searched for its end.
_BLANKS: Final = 64
_MEDIA_TYPES: Final = (
    "application/json",
    "text/xml",
    "application/xml",
    "multipart/mixed",
    FORM_MEDIA_TYPE,
)
_ID: Final = re.compile(ID_PATTERN)


async def read_submission(http: HttpRequest, jobs: JobService) -> tuple[JobRequest, MessageFormat]:
    """The request and its format."""
    kind = http.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind not in _MEDIA_TYPES:
        raise Unsupported(f"content type {kind!r} is not supported; use {', '.join(_MEDIA_TYPES)}")
    if kind == FORM_MEDIA_TYPE:
        request, form = await _from_form(http, jobs), MessageFormat.JSON
    else:
        body = await http.body()
        request, form = await asyncio.to_thread(read_request, _with_id(body))
    if not _ID.fullmatch(request.id):
        raise ConfigurationError(f"id {request.id!r}: cannot be part of a URL")
    return request, form


def new_id() -> str:
    return uuid.uuid4().hex


def _with_id(body: bytes) -> bytes:
    """Insert an id in front: of a repeated key JSON takes the last, so it only fills a gap."""
    start, brace, rest = body.partition(b"{")
    if not brace or start.strip():
        return body
    comma = b"" if rest[:_BLANKS].lstrip().startswith(b"}") else b","
    return b'{"id":"%s"%s%s' % (new_id().encode(), comma, rest)


async def _from_form(http: HttpRequest, jobs: JobService) -> JobRequest:
    """A data set may be a file or `NAME@VERSION`, models a file or the id of a job."""
    async with http.form(max_files=MAX_FILES, max_fields=MAX_FIELDS) as form:
        texts = {name: value for name, value in form.items() if isinstance(value, str)}
        files: dict[str, dict[str, bytes]] = {}
        for name, value in form.multi_items():
            if isinstance(value, UploadFile) and value.filename:
                files.setdefault(name, {})[value.filename] = await value.read()
    if reference := texts.get("dataset"):
        text = await asyncio.to_thread(jobs.datasets.text, reference)
        files.setdefault("dataset", {})[_SAVED] = text.encode()
    if texts.get("models"):
        files.setdefault("models", {})[_SAVED] = (await jobs.result(texts["models"])).models
    return await asyncio.to_thread(_request, texts, files)


def _request(texts: Mapping[str, str], files: Mapping[str, Mapping[str, bytes]]) -> JobRequest:
    kind = texts.get("type", "")
    identity = texts.get("id") or new_id()
    if kind == "fake":
        spans = {name: texts[name] for name in ("duration", "interval") if texts.get(name)}
        request, _ = read_request(json.dumps({"type": kind, "id": identity, **spans}).encode())
        return request
    if kind == "build_models":
        dataset = _dataset(files, DatasetPurpose.BUILD)
        return BuildModels(identity, dataset, read_agings(files.get("aging", {})))
    if kind == "predict_models":
        dataset = _dataset(files, DatasetPurpose.PREDICT)
        models = _one(files, "models")
        model_file.load_model(models)
        return PredictModels(identity, dataset, models)
    raise JobFormatError(f"field 'type' is {kind!r}: must be fake, build_models or predict_models")


def _dataset(files: Mapping[str, Mapping[str, bytes]], purpose: DatasetPurpose) -> Dataset:
    saved = _SAVED in files.get("dataset", {})
    return read_dataset(_one(files, "dataset"), purpose, foreign=saved)


def _one(files: Mapping[str, Mapping[str, bytes]], name: str) -> bytes:
    found = list(files.get(name, {}).values())
    if len(found) != 1:
        raise JobFormatError(f"field {name!r}: expected one, got {len(found)}")
    return found[0]


#: In place of the name of a file: it was referred to. A file has no empty name.
_SAVED: Final = ""
_ZIP_MAGIC: Final = b"PK"
#: Of all trials, unpacked: a line of four bytes becomes objects of more than a hundred.
MAX_TRIALS_BYTES: Final = 4 * MiB
PREVIEW_ROWS: Final = 200


class DatasetPurpose(Enum):
    """A reference for building models needs enough samples of both origins."""

    BUILD = "build_models"
    PREDICT = "predict_models"


@dataclass(frozen=True, slots=True)
class DatasetCheck:
    columns: Dataset
    rows: tuple[tuple[str, ...], ...]  #: for a preview, the names first
    problems: tuple[DatasetProblem, ...]
    samples: int = 0
    humans: int = 0
    indicators: tuple[str, ...] = ()

    @property
    def animals(self) -> int:
        return self.samples - self.humans

    @property
    def usable(self) -> bool:
        return not self.problems


def check_dataset(data: bytes, purpose: DatasetPurpose, *, foreign: bool = False) -> DatasetCheck:
    """With `foreign`, columns that the models do not use may have any name."""
    rows = _rows(data)
    try:
        columns = read_csv(data, foreign=foreign)
        matrix = prepare(columns)
    except DatasetError as error:
        return DatasetCheck({}, rows, error.problems)
    problems = () if purpose is DatasetPurpose.PREDICT else _lacking(matrix)
    names = tuple(name for name in INDICATORS if name in columns)
    humans = int((matrix.origins == HUMAN).sum())
    if not names:
        text = f"no indicators; the indicators are {', '.join(INDICATORS)}"
        problems = (DatasetProblem(1, "", text), *problems)
    if not len(matrix):
        problems = (DatasetProblem(2, "", "no samples"), *problems)
    return DatasetCheck(columns, rows, tuple(problems), len(matrix), humans, names)


def read_dataset(data: bytes, purpose: DatasetPurpose, *, foreign: bool = False) -> Dataset:
    """The columns; raises `DatasetError` with all problems."""
    checked = check_dataset(data, purpose, foreign=foreign)
    if checked.problems:
        raise DatasetError(checked.problems)
    return checked.columns


def read_agings(files: Mapping[str, bytes]) -> Agings:
    """Trials from files `env<NAME>-<SEASON>.txt`, single or in zips; others are ignored."""
    found: dict[str, tuple[Aging, ...]] = {}
    for name, content in _unzipped(files).items():
        parsed = parse_file_name(name.rpartition("/")[2])
        if parsed is not None:
            column, season = parsed
            aging = Aging(read_trials(content, name), season.position)
            found[column] = (*found.get(column, ()), aging)
    if not found:
        text = "no trials: files are named env<NAME>-<SEASON>.txt, as envFC-Summer.txt"
        raise DatasetError([DatasetProblem(0, "", text)])
    return found


def _unzipped(files: Mapping[str, bytes]) -> dict[str, bytes]:
    plain: dict[str, bytes] = {}
    left = MAX_TRIALS_BYTES
    for name, content in files.items():
        zipped = content.startswith(_ZIP_MAGIC)
        found = archive.contents(content, most_bytes=left) if zipped else {name: content}
        left -= sum(map(len, found.values()))
        if left < 0:
            raise JobFormatError(f"the trials have more than {MAX_TRIALS_BYTES:,} bytes")
        plain |= found
    return plain


def _lacking(matrix: SampleMatrix) -> tuple[DatasetProblem, ...]:
    counted = {
        name: int((matrix.origins == label).sum())
        for label, name in ((HUMAN, "human"), (ANIMAL, "animal"))
    }
    return tuple(
        DatasetProblem(
            0, "CLASS", f"{count} {name} samples; at least {FOLDS} of each origin are needed"
        )
        for name, count in counted.items()
        if count < FOLDS
    )


def _rows(data: bytes) -> tuple[tuple[str, ...], ...]:
    """For a preview, even if the data set is invalid."""
    text = decode_text(data)
    lines = csv.reader(io.StringIO(text.replace("\0", ""), newline=""), delimiter=";")
    return tuple(tuple(row) for row, _ in zip(lines, range(PREVIEW_ROWS + 1), strict=False))
