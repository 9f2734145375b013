"""Requests and responses as XML, in the words of the Ichnaea clients.

What binary data goes with them (models) is not in here: MIME carries it beside.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar
from xml.sax.saxutils import escape, quoteattr

from penstock.jobs.errors import FormError
from penstock.jobs.forms import times
from penstock.jobs.forms.tree import Element, parse
from penstock.jobs.model import (
    Aging,
    Agings,
    BuildModels,
    Dataset,
    Fake,
    PredictModels,
    Request,
    Response,
    Result,
)

T = TypeVar("T")

#: What XML 1.0 has no way to write; the output of a command may have it all.
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# Reading.


def read_request(data: bytes, models: bytes = b"") -> Request:
    root = _root(data, "request")
    identity = _required(root, "id")
    kind = _required(root, "type")
    if kind == "fake":
        return Fake(
            identity,
            _attribute(root, "duration", _number(0.0), 10.0),
            _attribute(root, "interval", _number(math.ulp(0.0)), 1.0),
        )
    if kind == "build_models":
        return BuildModels(identity, _dataset(root), _agings(root))
    if kind == "predict_models":
        return PredictModels(identity, _dataset(root), models)
    raise FormError(f"{root}: there is no work of type {kind!r}")


def read_response(data: bytes, models: bytes = b"") -> Response:
    root = _root(data, "response")
    return Response(
        _required(root, "id"),
        _required(root, "type"),
        _attribute(root, "progress", _number(0.0, 1.0), 1.0),
        _attribute(root, "start", times.read, None),
        _attribute(root, "end", times.read, None),
        root.attributes.get("error"),
        tuple(_result(element) for element in root.all("result")),
        models,
    )


def _root(data: bytes, name: str) -> Element:
    root = parse(data)
    if root.name != name:
        raise FormError(f"{root}: a <{name}> was expected")
    return root


def _required(element: Element, name: str) -> str:
    value = element.attributes.get(name, "").strip()
    if not value:
        raise FormError(f"{element}: it has no {name}")
    return value


def _attribute(element: Element, name: str, read: Callable[[str], T], default: T | None) -> T:
    text = element.attributes.get(name)
    if text is None:
        return default  # type: ignore[return-value]
    try:
        return read(text)
    except FormError as error:
        raise FormError(f"{element}: {name}: {error}") from error


def _number(least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError as error:
            raise FormError(f"{text!r} is not a number") from error
        if not math.isfinite(number) or not least <= number <= most:
            raise FormError(f"{text!r} is out of range")
        return number

    return read


def _count(text: str) -> int:
    number = _number(0)(text)
    if number != int(number):
        raise FormError(f"{text!r} is not a whole number")
    return int(number)


def _dataset(parent: Element) -> Dataset:
    element = parent.first("dataset")
    return {} if element is None else _columns(element, lambda value: value.text.strip())


def _columns(element: Element, read: Callable[[Element], T]) -> dict[str, tuple[T, ...]]:
    columns: dict[str, tuple[T, ...]] = {}
    for column in element.all("column"):
        name = _required(column, "name")
        if name in columns:
            raise FormError(f"{column}: there are two columns {name!r}")
        columns[name] = tuple(read(value) for value in column.all("value"))
    return columns


def _agings(parent: Element) -> Agings:
    element = parent.first("agings")
    agings: dict[str, tuple[Aging, ...]] = {}
    for column in element.all("column") if element is not None else ():
        name = _required(column, "name")
        if name in agings:
            raise FormError(f"{column}: there are two columns {name!r}")
        agings[name] = tuple(
            Aging(
                tuple(_trial(trial) for trial in aging.all("trial")),
                _attribute(aging, "position", _number(), None),
            )
            for aging in column.all("aging")
        )
    return agings


def _trial(trial: Element) -> tuple[tuple[float, float], ...]:
    def point(value: Element) -> tuple[float, float]:
        _required(value, "key")
        try:
            return _attribute(value, "key", _number(), 0.0), _number()(value.text)
        except FormError as error:
            raise FormError(f"{value}: {error}") from error

    return tuple(point(value) for value in trial.all("value"))


def _result(element: Element) -> Result:
    matrix = element.first("confusionMatrix")
    return Result(
        _required(element, "name"),
        _attribute(element, "totalSamples", _count, 0),
        _attribute(element, "predictedSamples", _count, 0),
        _attribute(element, "testError", _number(0.0, 1.0), None),
        _dataset(element) if element.first("dataset") is not None else None,
        None if matrix is None else _columns(matrix, lambda value: _count(value.text)),
    )


# Writing.


def write_request(request: Request) -> bytes:
    if isinstance(request, Fake):
        attributes = _attributes(
            id=request.id, type=request.type, duration=request.duration, interval=request.interval
        )
        return _document("request", attributes, ())
    if not isinstance(request, BuildModels | PredictModels):
        raise FormError(f"work of type {request.type!r} is asked for in JSON")
    content = [_written_dataset(request.dataset)]
    if isinstance(request, BuildModels) and request.agings:
        content.append(_written_agings(request.agings))
    return _document("request", _attributes(id=request.id, type=request.type), content)


def write_response(response: Response) -> bytes:
    attributes = _attributes(
        id=response.id,
        type=response.type,
        progress=response.progress,
        start=None if response.start is None else times.written(response.start),
        end=None if response.end is None else times.written(response.end),
        error=response.error,
    )
    return _document("response", attributes, map(_written_result, response.results))


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


#: In an attribute a reader would make blanks of them.
_LINES: Final = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _text(text: str) -> str:
    return escape(_writable(text), {"\r": "&#13;"})


def _value(text: str, key: float | None = None) -> str:
    return _element("value", _attributes(key=key), _text(text))


def _written_columns(columns: Mapping[str, Iterable[object]]) -> Iterator[str]:
    for name, values in columns.items():
        content = "".join(_value(str(value)) for value in values)
        yield _element("column", _attributes(name=name), content)


def _written_dataset(dataset: Dataset) -> str:
    return _element("dataset", "", "".join(_written_columns(dataset)))


def _written_agings(agings: Agings) -> str:
    def written(aging: Aging) -> str:
        trials = (
            _element("trial", "", "".join(_value(str(value), key) for key, value in trial))
            for trial in aging.trials
        )
        return _element("aging", _attributes(position=aging.position), "".join(trials))

    columns = (
        _element("column", _attributes(name=name), "".join(map(written, each)))
        for name, each in agings.items()
    )
    return _element("agings", "", "".join(columns))


def _written_result(result: Result) -> str:
    attributes = _attributes(
        name=result.name,
        predictedSamples=result.predicted_samples,
        testError=result.test_error,
        totalSamples=result.total_samples,
    )
    content = "" if result.dataset is None else _written_dataset(result.dataset)
    if result.confusion is not None:
        content += _element("confusionMatrix", "", "".join(_written_columns(result.confusion)))
    return _element("result", attributes, content)
