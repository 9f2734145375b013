"""WIS2 notifications conform to WMO's schema, whatever they are made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock_pump.posts.checksums import Checksum, removal_sum
from penstock_pump.posts.formats import codec_named
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import InlineContent, Post
from penstock_pump.posts.topics import mqtt_filter, mqtt_topic
from penstock_pump.posts.wis2_schema import CONFORMS_TO, notification_problems

POST = Post(
    moment=1_700_000_000 * 10**9, base_url="https://h/", relpath="a/b c.bufr",
    sum=Checksum("s", "00" * 64), parts=Parts.whole(7), mtime=1_600_000_000 * 10**9,
)  # fmt: skip
WIS2BOX: dict[str, Any] = {
    "id": "7c5a9c3e-7a54-4c0b-a9a3-3c6f1b0a9a10",
    "type": "Feature",
    "conformsTo": [CONFORMS_TO],
    "geometry": {"type": "Point", "coordinates": [33.5, -13.2, 1100.0]},
    "properties": {
        "data_id": "mw-malawi_met_centre/data/core/weather/WIGOS_0-454-2-AWSNAMI_20220101T000000",
        "metadata_id": "urn:wmo:md:mw-malawi_met_centre:surface-based-observations",
        "datetime": "2022-01-01T00:00:00Z",
        "pubtime": "2022-01-01T00:05:11Z",
        "integrity": {"method": "sha512", "value": "AAAA"},
        "wigos_station_identifier": "0-454-2-AWSNAMI",
    },
    "links": [
        {
            "rel": "canonical", "type": "application/bufr", "length": 253,
            "href": "http://h/data/2022-01-01/wis/WIGOS_0-454-2-AWSNAMI_20220101T000000.bufr4",
        },
        {"rel": "via", "type": "text/html", "href": "https://oscar.wmo.int/surface"},
    ],
}  # fmt: skip


def encoded(post: Post) -> bytes:
    return json.dumps(codec_named("wis2").encode(post).body).encode()


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"mtime": None},
        {"sum": Checksum("d", "00" * 16)},
        {"sum": Checksum("z", "s")},
        {"sum": None, "parts": None},
        {"sum": removal_sum("b c.bufr"), "parts": None},
        {"content": InlineContent(b"7 bytes")},
        {"content": InlineContent(b"x" * 5000)},
        {"source": "me", "mode": 0o644, "extra": {"flow": "x"}},
    ],
    ids=str,
)
def test_a_post_of_any_kind_makes_a_notification_that_conforms(facts: dict[str, Any]) -> None:
    fields = {name: getattr(POST, name) for name in ("moment", "base_url", "relpath", "sum")}
    post = Post(**{**fields, "parts": POST.parts, "mtime": POST.mtime, **facts})
    assert notification_problems(encoded(post)) == []


def test_a_notification_of_wis2box_is_read_and_passed_on_as_it_is() -> None:
    body = json.dumps(WIS2BOX).encode()
    assert notification_problems(body) == []
    post = codec_named("wis2").decode(body, {})
    assert (post.base_url, post.name) == (
        "http://h/", "WIGOS_0-454-2-AWSNAMI_20220101T000000.bufr4",
    )  # fmt: skip
    assert json.loads(encoded(post)) == WIS2BOX


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("id",), "x", "id: 'x' is not a 'uuid'"),
        (("conformsTo",), ["other"], "conformsTo: "),
        (("type",), "Thing", "type: "),
        (("geometry",), {"type": "Line"}, "geometry: "),
        (("properties", "pubtime"), "2022-01-01T00:00:00+01:00", "properties.pubtime: "),
        (("properties", "datetime"), ..., "properties: "),
        (("properties", "integrity", "method"), "md5", "properties.integrity.method: 'md5'"),
        (("links",), [], "links: "),
        (("links", 0, "rel"), "item", "links: "),
        (("properties", "note"), "x" * 9000, "message: "),
    ],
)
def test_what_does_not_conform_is_named(path: tuple[Any, ...], value: Any, problem: str) -> None:
    given = json.loads(json.dumps(WIS2BOX))
    holder = given
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    assert any(
        each.startswith(problem) for each in notification_problems(json.dumps(given).encode())
    )


def test_the_command(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(WIS2BOX))
    bad.write_text("{}")
    found = CliRunner().invoke(app, ["pump", "wis2", "validate", str(good)])
    assert (found.exit_code, found.stdout) == (0, f"{good}: valid\n")
    found = CliRunner().invoke(app, ["pump", "wis2", "validate", str(good), str(bad)])
    assert found.exit_code == 1
    assert f"{bad}: 6 problems" in found.stdout


def test_topics_of_wis2_begin_with_the_channel() -> None:
    words = ["mw-malawi_met_centre", "data", "core"]
    assert mqtt_topic("", "origin.a.wis2", words) == "origin/a/wis2/mw-malawi_met_centre/data/core"
    assert mqtt_filter("", "cache.a.wis2", "*.data.core.#") == "cache/a/wis2/+/data/core/#"
