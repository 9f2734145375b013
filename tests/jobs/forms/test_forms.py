"""One model, three forms: what is written in any of them is read as it was."""

from __future__ import annotations

import contextlib
import json as text_json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from penstock.jobs.errors import FormError
from penstock.jobs.forms import (
    Form,
    json,
    read_request,
    read_response,
    write_request,
    write_response,
    xml,
)
from penstock.jobs.model import BuildModels, Fake, PredictModels, Request, Response
from tests.jobs.forms.models import requests, responses

SCHEMA = etree.XMLSchema(
    etree.fromstring(files("penstock.jobs.forms").joinpath("ichnaea.xsd").read_bytes())
)
JSON_SCHEMA = json.schema()


def valid_json(kind: str) -> Any:
    names = {"request": ["Fake", "BuildModels", "PredictModels"], "response": ["Response"]}[kind]
    choices = [{"$ref": f"#/$defs/{name}"} for name in names]
    return jsonschema.Draft202012Validator({"anyOf": choices, "$defs": JSON_SCHEMA["$defs"]})


@given(requests, st.sampled_from([Form.JSON, Form.XML]))
def test_a_request_is_read_as_it_was_written(request: Request, form: Form) -> None:
    assert read_request(write_request(request, form).body)[0] == request


@given(responses(), st.sampled_from([Form.JSON, Form.XML]))
def test_a_response_is_read_as_it_was_written(response: Response, form: Form) -> None:
    assert read_response(write_response(response, form).body)[0] == response


@given(requests)
def test_both_schemas_accept_every_request(request: Request) -> None:
    SCHEMA.assertValid(etree.fromstring(xml.write_request(request)))
    valid_json("request").validate(text_json.loads(json.write_request(request)))


@given(responses())
def test_both_schemas_accept_every_response(response: Response) -> None:
    SCHEMA.assertValid(etree.fromstring(xml.write_response(response)))
    valid_json("response").validate(text_json.loads(json.write_response(response)))


@pytest.mark.parametrize(
    ("in_xml", "in_json"),
    [
        ('<request type="fake"/>', {"type": "fake"}),
        ('<request id="" type="fake"/>', {"id": "", "type": "fake"}),
        ('<request id="1"/>', {"id": "1"}),
        ('<request id="1" type="bake"/>', {"id": "1", "type": "bake"}),
        (
            '<request id="1" type="fake" duration="-1"/>',
            {"id": "1", "type": "fake", "duration": -1},
        ),
        ('<request id="1" type="fake" interval="0"/>', {"id": "1", "type": "fake", "interval": 0}),
        (
            '<request id="1" type="fake" duration="soon"/>',
            {"id": "1", "type": "fake", "duration": "soon"},
        ),
        (
            '<request id="1" type="build_models"><agings><column name="a"><aging><trial>'
            "<value key='0'>x</value></trial></aging></column></agings></request>",
            {"id": "1", "type": "build_models", "agings": {"a": [{"trials": [[[0, "x"]]]}]}},
        ),
    ],
)
def test_both_schemas_and_both_readers_refuse_the_same_requests(in_xml: str, in_json: Any) -> None:
    assert not SCHEMA.validate(etree.fromstring(in_xml))
    assert not valid_json("request").is_valid(in_json)
    with pytest.raises(FormError):
        read_request(in_xml.encode())
    with pytest.raises(FormError):
        read_request(text_json.dumps(in_json).encode())


@pytest.mark.parametrize(
    ("in_xml", "in_json"),
    [
        ('<response id="1" type="fake" progress="2"/>', {"id": "1", "type": "fake", "progress": 2}),
        ('<response id="1" type="fake" start="now"/>', {"id": "1", "type": "fake", "start": "now"}),
        (
            '<response id="1" type="predict_models"><result name="E" totalSamples="-1" '
            'predictedSamples="0"/></response>',
            {
                "id": "1",
                "type": "predict_models",
                "results": [{"name": "E", "total_samples": -1, "predicted_samples": 0}],
            },
        ),
    ],
)
def test_both_readers_refuse_the_same_responses(in_xml: str, in_json: Any) -> None:
    assert not SCHEMA.validate(etree.fromstring(in_xml))
    with pytest.raises(FormError):
        read_response(in_xml.encode())
    with pytest.raises(FormError):
        read_response(text_json.dumps(in_json).encode())


def test_a_name_that_is_not_known_is_told() -> None:
    with pytest.raises(FormError, match="duraton"):
        read_request(b'{"id": "1", "type": "fake", "duraton": 3}')


def test_what_goes_as_which_content_type() -> None:
    def kind(written: Any) -> str:
        return str(written.content_type)

    assert kind(write_request(Fake("1"), Form.XML)) == "text/xml"
    assert kind(write_request(BuildModels("1"), Form.XML)) == "text/xml"
    assert kind(write_request(PredictModels("1"), Form.XML)) == "multipart/mixed"
    assert kind(write_response(Response("1", "fake"), Form.XML)) == "text/xml"
    assert kind(write_response(Response("1", "build_models"), Form.XML)) == "multipart/mixed"
    assert kind(write_request(Fake("1"))) == "application/json"


def test_a_prediction_is_bare_xml_although_labelled_otherwise() -> None:
    written = write_response(Response("1", "predict_models"), Form.XML)
    assert written.content_type == "multipart/mixed"
    assert written.body.startswith(b"<response")
    assert read_response(written.body) == (Response("1", "predict_models"), Form.XML)


@pytest.mark.parametrize("data", [b"", b"   ", b"hello", b"PK\x03\x04", b"[]", b"\x00" * 100])
def test_what_is_none_of_the_forms_is_refused(data: bytes) -> None:
    with pytest.raises(FormError):
        read_request(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"<", b"{", b"--", b"--f\n", b"<request "]))
def test_whatever_comes_is_read_or_refused(data: bytes, start: bytes) -> None:
    for read in (read_request, read_response):
        with contextlib.suppress(FormError):
            assert read(start + data)[0].id
