"""A model in the form that is asked for.

XML has no place for binary data: a message that has some, or is of a type whose messages may, goes
as MIME, as the Ichnaea clients expect it. Their predictions come back as bare XML, though labelled
as MIME like the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.jobs.forms import json, mime, xml
from penstock.jobs.forms.reading import Form
from penstock.jobs.model import PredictModels, Request, Response

ZIP: Final = "application/zip"


@dataclass(frozen=True, slots=True)
class Written:
    body: bytes
    content_type: str


def write_request(request: Request, form: Form = Form.JSON) -> Written:
    if form is Form.JSON:
        return Written(json.write_request(request), form.value)
    text = xml.write_request(request)
    if isinstance(request, PredictModels):
        return _in_parts(text, request.models)
    return Written(text, Form.XML.value)


def write_response(response: Response, form: Form = Form.JSON) -> Written:
    if form is Form.JSON:
        return Written(json.write_response(response), form.value)
    text = xml.write_response(response)
    if response.type == "build_models":
        return _in_parts(text, response.models)
    if response.type == "predict_models":
        return Written(text, Form.MIME.value)
    return Written(text, Form.XML.value)


def _in_parts(text: bytes, models: bytes) -> Written:
    parts = [mime.Part(Form.XML.value, text)]
    if models:
        parts.append(mime.Part(ZIP, models))
    return Written(mime.write(parts), Form.MIME.value)
