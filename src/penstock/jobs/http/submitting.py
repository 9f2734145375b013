"""A request out of an HTTP body: JSON, the Ichnaea clients' XML and MIME, or a form with files.

The first three are sniffed as messages are, whatever their label; a form is what its content type
says. A request without an id is given one. What may be large is read beside the loop.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import UploadFile
from starlette.requests import Request as HttpRequest

from penstock.core.errors import ConfigurationError, Unsupported
from penstock.jobs.errors import FormError
from penstock.jobs.forms import Form, read_request
from penstock.jobs.http import intake
from penstock.jobs.http.intake import Purpose
from penstock.jobs.http.models import ID_PATTERN
from penstock.jobs.model import BuildModels, PredictModels, Request
from penstock.jobs.science import modelfile

FORM: Final = "multipart/form-data"
#: A form has the trials of each indicator in each season, and more.
FILES: Final = 200
FIELDS: Final = 20
#: So far an object that is empty is looked for its end.
_BLANKS: Final = 64
_SENT: Final = ("application/json", "text/xml", "application/xml", "multipart/mixed", FORM)
_ID: Final = re.compile(ID_PATTERN)


async def submitted(http: HttpRequest) -> tuple[Request, Form]:
    """What is asked for, and in which form; refused if it cannot be understood."""
    kind = http.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind not in _SENT:
        raise Unsupported(f"{kind!r} is not understood here; there are {', '.join(_SENT)}")
    if kind == FORM:
        request, form = await _from_form(http), Form.JSON
    else:
        body = await http.body()
        request, form = await asyncio.to_thread(_read, body)
    if not _ID.fullmatch(request.id):
        raise ConfigurationError(f"the id {request.id!r} could not be part of an address")
    return request, form


def new_id() -> str:
    return uuid.uuid4().hex


def _read(body: bytes) -> tuple[Request, Form]:
    return read_request(_with_id(body))


def _with_id(body: bytes) -> bytes:
    """Of a key that is there twice the last holds: this id is the request's if it has no other."""
    start, brace, rest = body.partition(b"{")
    if not brace or start.strip():
        return body
    comma = b"" if rest[:_BLANKS].lstrip().startswith(b"}") else b","
    return b'{"id":"%s"%s%s' % (new_id().encode(), comma, rest)


async def _from_form(http: HttpRequest) -> Request:
    async with http.form(max_files=FILES, max_fields=FIELDS) as form:
        texts = {name: value for name, value in form.items() if isinstance(value, str)}
        files: dict[str, dict[str, bytes]] = {}
        for name, value in form.multi_items():
            if isinstance(value, UploadFile) and value.filename:
                files.setdefault(name, {})[value.filename] = await value.read()
    return await asyncio.to_thread(_request, texts, files)


def _request(texts: Mapping[str, str], files: Mapping[str, Mapping[str, bytes]]) -> Request:
    kind = texts.get("type", "")
    identity = texts.get("id") or new_id()
    if kind == "fake":
        spans = {name: texts[name] for name in ("duration", "interval") if texts.get(name)}
        request, _ = read_request(json.dumps({"type": kind, "id": identity, **spans}).encode())
        return request
    if kind == "build_models":
        dataset = intake.dataset(_one(files, "dataset"), Purpose.BUILD)
        return BuildModels(identity, dataset, intake.agings(files.get("aging", {})))
    if kind == "predict_models":
        dataset = intake.dataset(_one(files, "dataset"), Purpose.PREDICT)
        models = _one(files, "models")
        modelfile.load(models)
        return PredictModels(identity, dataset, models)
    raise FormError(f"the field 'type' is {kind!r}: fake, build_models or predict_models is wanted")


def _one(files: Mapping[str, Mapping[str, bytes]], name: str) -> bytes:
    found = list(files.get(name, {}).values())
    if len(found) != 1:
        raise FormError(f"one file is wanted in the field {name!r}; there are {len(found)}")
    return found[0]
