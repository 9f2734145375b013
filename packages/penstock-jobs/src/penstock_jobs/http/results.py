"""A result in the form that is asked for: JSON, the Ichnaea clients' XML or MIME, CSV, or a zip.

A form that a result has nothing for (a table of a job that only took time) is refused with those
it has.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.errors import PreconditionFailed
from penstock_jobs.formats import MessageFormat, mime, write_response
from penstock_jobs.model import Dataset, JobResponse

#: The way of voting whose table stands for a prediction where there is place for one.
SCHEME: Final = "ERROR2"


class ResultFormat(StrEnum):
    JSON = "json"
    XML = "xml"
    MIME = "mime"
    CSV = "csv"
    ZIP = "zip"


#: As they are asked for by `Accept`, the first one where it does not matter.
MEDIA_TYPES: Final = {
    "application/json": ResultFormat.JSON,
    "text/xml": ResultFormat.XML,
    "application/xml": ResultFormat.XML,
    "multipart/mixed": ResultFormat.MIME,
    "text/csv": ResultFormat.CSV,
    "application/zip": ResultFormat.ZIP,
}


@dataclass(frozen=True, slots=True)
class ResultFile:
    body: bytes
    media_type: str
    file_name: str


def result_formats(response: JobResponse) -> tuple[ResultFormat, ...]:
    """What this result can be had as."""
    found = [ResultFormat.JSON, ResultFormat.XML, ResultFormat.MIME]
    if any(result.dataset for result in response.results):
        found.append(ResultFormat.CSV)
    if response.models:
        found.append(ResultFormat.ZIP)
    return tuple(found)


def accepted_format(header: str) -> ResultFormat:
    """The first media type of an `Accept` header that is known; JSON if it does not matter."""
    for part in header.split(","):
        found = MEDIA_TYPES.get(part.partition(";")[0].strip().lower())
        if found is not None:
            return found
    return ResultFormat.JSON


def write_result(response: JobResponse, kind: ResultFormat, scheme: str = SCHEME) -> ResultFile:
    has = result_formats(response)
    if kind not in has:
        raise PreconditionFailed(f"this result cannot be had as {kind}; but as {', '.join(has)}")
    name = f"{response.id}.{kind}"
    match kind:
        case ResultFormat.JSON:
            return ResultFile(
                write_response(response, MessageFormat.JSON).body, "application/json", name
            )
        case ResultFormat.XML:
            body = write_response(response, MessageFormat.XML).body
            return ResultFile(_text_of(body), "text/xml", name)
        case ResultFormat.MIME:
            return ResultFile(
                write_response(response, MessageFormat.MIME).body, "multipart/mixed", name
            )
        case ResultFormat.CSV:
            return ResultFile(_csv(response, scheme), "text/csv", f"{response.id}-{scheme}.csv")
        case ResultFormat.ZIP:
            return ResultFile(response.models, "application/zip", f"{response.id}.zip")


def csv_text(columns: Dataset, delimiter: str = ";") -> str:
    """As the data sets that come in are written."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    longest = max((len(cells) for cells in columns.values()), default=0)
    for row in range(longest):
        writer.writerow([_cell(cells, row) for cells in columns.values()])
    return out.getvalue()


def _cell(cells: Sequence[str], row: int) -> str:
    return cells[row] if row < len(cells) else ""


def _text_of(body: bytes) -> bytes:
    """The XML alone, where a message would carry models beside it."""
    if not body.lstrip().startswith(b"--"):
        return body
    return next(
        part.content for part in mime.read(body) if part.content_type == MessageFormat.XML.value
    )


def _csv(response: JobResponse, scheme: str) -> bytes:
    tables = {result.name: result.dataset for result in response.results if result.dataset}
    if scheme not in tables:
        raise PreconditionFailed(f"no table of {scheme!r}; there are {', '.join(tables)}")
    return csv_text(tables[scheme]).encode()
