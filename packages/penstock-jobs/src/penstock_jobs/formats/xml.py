"""Requests and responses as XML, in the vocabulary of the Ichnaea clients.

The parser is for untrusted input: it refuses document types, which all attacks on XML parsers need,
and bounds depth, number of elements and size of a tag; its time is linear in the size. Binary data
is not in the XML: MIME carries it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from penstock.core.units import MiB
from penstock_jobs.errors import JobFormatError
from penstock_jobs.model import (
    Aging,
    Agings,
    BuildModels,
    Dataset,
    Fake,
    JobRequest,
    JobResponse,
    PredictModels,
    VoteResult,
)

T = TypeVar("T")

#: Characters that XML 1.0 cannot represent; the output of a command may have them.
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_request(data: bytes, models: bytes = b"") -> JobRequest:
    root = _root(data, "request")
    identity = _required(root, "id")
    kind = _required(root, "type")
    if kind == "fake":
        return Fake(
            identity,
            _attribute(root, "duration", _number(0.0), 10.0),
            _attribute(root, "interval", _number(math.ulp(0.0)), 1.0),
        )
    duration: float | None = _attribute(root, "duration", _number(0.0), None)
    interval: float | None = _attribute(root, "interval", _number(math.ulp(0.0)), None)
    if kind == "build_models":
        return BuildModels(identity, _dataset(root), _agings(root), duration, interval)
    if kind == "predict_models":
        return PredictModels(identity, _dataset(root), models, duration, interval)
    raise JobFormatError(f"{root}: unknown type {kind!r}")


def read_response(data: bytes, models: bytes = b"") -> JobResponse:
    root = _root(data, "response")
    return JobResponse(
        _required(root, "id"),
        _required(root, "type"),
        _attribute(root, "progress", _number(0.0, 1.0), 1.0),
        _attribute(root, "start", parse_time, None),
        _attribute(root, "end", parse_time, None),
        root.attributes.get("error"),
        tuple(_result(element) for element in root.all("result")),
        models,
    )


def read_dataset(data: bytes) -> Dataset:
    """A data set by itself, or that of a request."""
    root = parse_xml(data)
    if root.name == "dataset":
        return _dataset_columns(root)
    found = root.first("dataset")
    if found is None:
        raise JobFormatError(f"{root}: expected <dataset>, or a request with one")
    return _dataset_columns(found)


def _root(data: bytes, name: str) -> XmlElement:
    root = parse_xml(data)
    if root.name != name:
        raise JobFormatError(f"{root}: expected <{name}>")
    return root


def _required(element: XmlElement, name: str) -> str:
    value = element.attributes.get(name, "").strip()
    if not value:
        raise JobFormatError(f"{element}: attribute {name} is missing")
    return value


def _attribute(element: XmlElement, name: str, read: Callable[[str], T], default: T | None) -> T:
    text = element.attributes.get(name)
    if text is None:
        return default  # type: ignore[return-value]
    try:
        return read(text)
    except JobFormatError as error:
        raise JobFormatError(f"{element}: {name}: {error}") from error


def _number(least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError as error:
            raise JobFormatError(f"{text!r} is not a number") from error
        if not math.isfinite(number) or not least <= number <= most:
            raise JobFormatError(f"{text!r} is out of range")
        return number

    return read


def _count(text: str) -> int:
    number = _number(0)(text)
    if number != int(number):
        raise JobFormatError(f"{text!r} is not a whole number")
    return int(number)


def _dataset(parent: XmlElement) -> Dataset:
    element = parent.first("dataset")
    return {} if element is None else _dataset_columns(element)


def _dataset_columns(element: XmlElement) -> Dataset:
    return _columns(element, lambda value: value.text.strip())


def _columns(element: XmlElement, read: Callable[[XmlElement], T]) -> dict[str, tuple[T, ...]]:
    columns: dict[str, tuple[T, ...]] = {}
    for column in element.all("column"):
        name = _required(column, "name")
        if name in columns:
            raise JobFormatError(f"{column}: duplicate column {name!r}")
        columns[name] = tuple(read(value) for value in column.all("value"))
    return columns


def _agings(parent: XmlElement) -> Agings:
    element = parent.first("agings")
    agings: dict[str, tuple[Aging, ...]] = {}
    for column in element.all("column") if element is not None else ():
        name = _required(column, "name")
        if name in agings:
            raise JobFormatError(f"{column}: duplicate column {name!r}")
        agings[name] = tuple(
            Aging(
                tuple(_trial(trial) for trial in aging.all("trial")),
                _attribute(aging, "position", _number(), None),
            )
            for aging in column.all("aging")
        )
    return agings


def _trial(trial: XmlElement) -> tuple[tuple[float, float], ...]:
    def point(value: XmlElement) -> tuple[float, float]:
        _required(value, "key")
        try:
            return _attribute(value, "key", _number(), 0.0), _number()(value.text)
        except JobFormatError as error:
            raise JobFormatError(f"{value}: {error}") from error

    return tuple(point(value) for value in trial.all("value"))


def _result(element: XmlElement) -> VoteResult:
    matrix = element.first("confusionMatrix")
    return VoteResult(
        element.attributes.get("name", "").strip(),  # progress of a script has none
        _attribute(element, "totalSamples", _count, 0),
        _attribute(element, "predictedSamples", _count, 0),
        _attribute(element, "testError", _number(0.0, 1.0), None),
        _dataset(element) if element.first("dataset") is not None else None,
        None if matrix is None else _columns(matrix, lambda value: _count(value.text)),
    )


def write_request(request: JobRequest) -> bytes:
    if isinstance(request, Fake):
        attributes = _attributes(
            id=request.id, type=request.type, duration=request.duration, interval=request.interval
        )
        return _document("request", attributes, ())
    if not isinstance(request, BuildModels | PredictModels):
        raise JobFormatError(f"type {request.type!r} has no XML format; use JSON")
    content = [_write_dataset(request.dataset)]
    if isinstance(request, BuildModels) and request.agings:
        content.append(_write_agings(request.agings))
    attributes = _attributes(
        id=request.id, type=request.type, duration=request.duration, interval=request.interval
    )
    return _document("request", attributes, content)


def write_response(response: JobResponse) -> bytes:
    attributes = _attributes(
        id=response.id,
        type=response.type,
        progress=response.progress,
        start=None if response.start is None else format_time(response.start),
        end=None if response.end is None else format_time(response.end),
        error=response.error,
    )
    return _document("response", attributes, map(_write_result, response.results))


def _document(name: str, attributes: str, content: Iterable[str]) -> bytes:
    return _element(name, attributes, "".join(content)).encode()


def _element(name: str, attributes: str, content: str) -> str:
    return f"<{name}{attributes}>{content}</{name}>" if content else f"<{name}{attributes}/>"


def _attributes(**values: object) -> str:
    return "".join(
        f" {name}={quoteattr(_writable(str(value)), _LINES)}"
        for name, value in values.items()
        if value is not None
    )


#: Parsers turn them into spaces inside attributes.
_LINES: Final = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _text(text: str) -> str:
    return escape(_writable(text), {"\r": "&#13;"})


def _value(text: str, key: float | None = None) -> str:
    return _element("value", _attributes(key=key), _text(text))


def _write_columns(columns: Mapping[str, Iterable[object]]) -> Iterator[str]:
    for name, values in columns.items():
        content = "".join(_value(str(value)) for value in values)
        yield _element("column", _attributes(name=name), content)


def _write_dataset(dataset: Dataset) -> str:
    return _element("dataset", "", "".join(_write_columns(dataset)))


def _write_agings(agings: Agings) -> str:
    def write(aging: Aging) -> str:
        trials = (
            _element("trial", "", "".join(_value(str(value), key) for key, value in trial))
            for trial in aging.trials
        )
        return _element("aging", _attributes(position=aging.position), "".join(trials))

    columns = (
        _element("column", _attributes(name=name), "".join(map(write, each)))
        for name, each in agings.items()
    )
    return _element("agings", "", "".join(columns))


def _write_result(result: VoteResult) -> str:
    attributes = _attributes(
        name=result.name or None,
        predictedSamples=result.predicted_samples,
        testError=result.test_error,
        totalSamples=result.total_samples,
    )
    content = "" if result.dataset is None else _write_dataset(result.dataset)
    if result.confusion is not None:
        content += _element("confusionMatrix", "", "".join(_write_columns(result.confusion)))
    return _element("result", attributes, content)


MAX_DEPTH: Final = 16
#: Ten thousand samples in twenty columns; an element takes about 300 bytes of memory.
MAX_ELEMENTS: Final = 200_000
#: Of a tag with its attributes; one may hold the output of a command.
MAX_TAG_BYTES: Final = 4 * MiB
_FEED_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class XmlElement:
    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[XmlElement] = field(default_factory=list)

    def all(self, name: str) -> list[XmlElement]:
        return [child for child in self.children if child.name == name]

    def first(self, name: str) -> XmlElement | None:
        return next((child for child in self.children if child.name == name), None)

    def __str__(self) -> str:
        return f"<{self.name}> in line {self.line}"


def parse_xml(data: bytes) -> XmlElement:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    open_elements = [XmlElement("", {}, 0)]
    #: The pieces of text of each open element; joined at its end, which is linear.
    texts: list[list[str]] = [[]]
    elements = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += 1
        line = parser.CurrentLineNumber
        if len(open_elements) > MAX_DEPTH:
            raise JobFormatError(f"line {line}: elements are nested more than {MAX_DEPTH} deep")
        if elements > MAX_ELEMENTS:
            raise JobFormatError(f"line {line}: more than {MAX_ELEMENTS:,} elements")
        element = XmlElement(name, attributes, line)
        open_elements[-1].children.append(element)
        open_elements.append(element)
        texts.append([])

    def end(_: str) -> None:
        open_elements.pop().text = "".join(texts.pop())

    def characters(text: str) -> None:
        texts[-1].append(text)

    def refuse(*_: object) -> None:
        raise JobFormatError(f"line {parser.CurrentLineNumber}: document types are not accepted")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        for at in range(0, len(data), _FEED_BYTES):
            parser.Parse(data[at : at + _FEED_BYTES], False)
            if at + _FEED_BYTES - parser.CurrentByteIndex > MAX_TAG_BYTES:
                line = parser.CurrentLineNumber
                raise JobFormatError(f"line {line}: a tag of more than {MAX_TAG_BYTES:,} bytes")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise JobFormatError(f"line {error.lineno}, column {error.offset + 1}: {reason}") from error
    except (LookupError, ValueError) as error:  # an unknown encoding
        raise JobFormatError(f"not readable as XML: {error}") from error
    return open_elements[0].children[0]


def format_time(time: datetime) -> str:
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    text = time.isoformat(timespec="milliseconds")
    return text[:-3] + text[-2:]  # the zone has no colon


def parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat("".join(text.split()))
    except ValueError as error:
        raise JobFormatError(
            f"{text!r} is not a time such as 2014-09-25T16:17:51.000+0200"
        ) from error
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
