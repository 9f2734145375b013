"""Results as files: JSON, the XML or MIME of the Ichnaea clients, CSV, zip.

A format that a result does not have is refused with the formats it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.errors import PreconditionFailed
from penstock_jobs.formats import MessageFormat, mime, write_response
from penstock_jobs.formats.csv import write_csv
from penstock_jobs.model import JobResponse

#: The voting scheme whose table is the CSV of a prediction by default.
SCHEME: Final = "ERROR2"


class ResultFormat(StrEnum):
    JSON = "json"
    XML = "xml"
    MIME = "mime"
    CSV = "csv"
    ZIP = "zip"


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
    formats = [ResultFormat.JSON, ResultFormat.XML, ResultFormat.MIME]
    if any(result.dataset for result in response.results):
        formats.append(ResultFormat.CSV)
    if response.models:
        formats.append(ResultFormat.ZIP)
    return tuple(formats)


def accepted_format(header: str) -> ResultFormat:
    """The first known media type of an `Accept` header, or JSON."""
    for part in header.split(","):
        found = MEDIA_TYPES.get(part.partition(";")[0].strip().lower())
        if found is not None:
            return found
    return ResultFormat.JSON


def write_result(response: JobResponse, kind: ResultFormat, scheme: str = SCHEME) -> ResultFile:
    has = result_formats(response)
    if kind not in has:
        raise PreconditionFailed(
            f"this result has no format {kind}; its formats are {', '.join(has)}"
        )
    name = f"{response.id}.{kind}"
    match kind:
        case ResultFormat.JSON:
            body = write_response(response, MessageFormat.JSON).body
            return ResultFile(body, "application/json", name)
        case ResultFormat.XML:
            body = write_response(response, MessageFormat.XML).body
            return ResultFile(_text_of(body), "text/xml", name)
        case ResultFormat.MIME:
            body = write_response(response, MessageFormat.MIME).body
            return ResultFile(body, "multipart/mixed", name)
        case ResultFormat.CSV:
            return ResultFile(_csv(response, scheme), "text/csv", f"{response.id}-{scheme}.csv")
        case ResultFormat.ZIP:
            return ResultFile(response.models, "application/zip", f"{response.id}.zip")


def _text_of(body: bytes) -> bytes:
    """The XML without the models."""
    if not body.lstrip().startswith(b"--"):
        return body
    return next(
        part.content for part in mime.read(body) if part.content_type == MessageFormat.XML.value
    )


def _csv(response: JobResponse, scheme: str) -> bytes:
    tables = {result.name: result.dataset for result in response.results if result.dataset}
    if scheme not in tables:
        raise PreconditionFailed(
            f"no table of scheme {scheme!r}; the schemes are {', '.join(tables)}"
        )
    return write_csv(tables[scheme]).encode()
