"""v03 and WIS2: JSON in, the same post as v02 has, JSON out."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pump.errors import BadPost
from penstock_pump.posts import Checksum, FileEvent, Parts, Post
from penstock_pump.posts.checksums import directory_sum, link_sum, removal_sum
from penstock_pump.posts.formats import codec_named, read_post
from penstock_pump.posts.post import InlineContent

MOMENT = 1_700_000_000_123_000_000


def again(post: Post, name: str = "v03") -> Post:
    return read_post(json.dumps(codec_named(name).encode(post).body).encode())


@pytest.mark.parametrize(
    "facts",
    [
        {"sum": Checksum("s", "00ff"), "parts": Parts.whole(5), "mode": 0o644, "mtime": MOMENT},
        {"sum": Checksum("d", "00ff"), "parts": Parts("i", 10, 3, 5, 2)},
        {"sum": Checksum("n", "00ff")},
        {"sum": Checksum("0", "1234")},
        {"sum": Checksum("a", "as you like")},
        {"sum": Checksum("z", "s")},
        {"sum": Checksum("unheard-of", "value")},
        {"sum": removal_sum("f")},
        {"sum": removal_sum("f", directory=True)},
        {"sum": directory_sum("f")},
        {"sum": link_sum("../t"), "link": "../t"},
        {"sum": Checksum("s", "00ff"), "oldname": "d/old"},
        {"sum": removal_sum("f"), "newname": "d/new"},
        {"content": InlineContent(b"\xff\x00")},
        {"content": InlineContent(b"text", "utf-8")},
        {"retrieve": "q?x=1"},
        {"extra": {"contentType": "text/plain", "nested": {"a": [1]}}},
    ],
    ids=str,
)
def test_what_is_written_as_v03_is_read_again(facts: dict[str, Any]) -> None:
    post = Post(moment=MOMENT, base_url="http://h/", relpath="d/f", **facts)
    assert again(post) == post


@given(st.binary(max_size=64))
def test_digests_are_base64_in_v03_and_hexadecimal_inside(digest: bytes) -> None:
    post = Post(moment=0, base_url="http://h/", relpath="f", sum=Checksum("s", digest.hex()))
    assert again(post) == post


def test_a_post_as_sr3_sends_it() -> None:
    post = read_post(
        json.dumps(
            {
                "pubTime": "20231114T221320.123",
                "baseUrl": "http://localhost:8090",
                "relPath": "a/b.txt",
                "size": 3,
                "mode": "644",
                "mtime": "20231114T221320",
                "identity": {"method": "md5", "value": "rL0Y20zC+Fzt72VPzMSk2A=="},
                "source": "tsource",
                "contentType": "text/plain",
            }
        ).encode()
    )
    assert post.moment == MOMENT
    assert post.sum == Checksum("d", "acbd18db4cc2f85cedef654fccc4a4d8")
    assert post.parts == Parts.whole(3)
    assert post.mode == 0o644
    assert post.source == "tsource"
    assert post.extra == {"contentType": "text/plain"}


def test_forms_of_earlier_days() -> None:
    old = ["20231114221320.123", "http://h/", "a", {"sum": "d,00", "parts": "1,5,1,0,0"}]
    post = read_post(json.dumps(old).encode())
    assert (post.sum, post.parts) == (Checksum("d", "00"), Parts.whole(5))
    named = {"pubTime": "20231114T221320", "baseUrl": "http://h/", "relPath": "a", "size": "5"}
    integrity = {"method": "sha512", "value": "AA=="}
    post = read_post(json.dumps({**named, "integrity": integrity}).encode())
    assert (post.sum, post.parts) == (Checksum("s", "00"), Parts.whole(5))


@pytest.mark.parametrize(
    "change",
    [
        {"relPath": None},
        {"relPath": "a\nb"},
        {"relPath": "\ud800"},
        {"pubTime": "now"},
        {"size": "large"},
        {"size": -1},
        {"blocks": {"method": "inplace", "size": 10, "count": 2, "remainder": 10}},
        {"blocks": []},
        {"identity": {"method": "md5", "value": "!"}},
        {"identity": {}},
        {"content": {"encoding": "base64", "value": "!"}},
        {"content": {"encoding": "rot13", "value": "a"}},
        {"fileOp": "remove"},
        {"mode": "abc"},
    ],
    ids=str,
)
def test_what_is_no_post_is_refused(change: dict[str, Any]) -> None:
    good = {"pubTime": "20231114T221320", "baseUrl": "http://h/", "relPath": "a"}
    with pytest.raises(BadPost):
        read_post(json.dumps({**good, **change}).encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
KEYS = ["pubTime", "baseUrl", "relPath", "size", "identity", "fileOp", "blocks", "content", "links"]


@given(st.dictionaries(st.sampled_from([*KEYS, "type", "properties"]), json_values))
def test_any_json_is_a_post_or_a_bad_post(value: dict[str, Any]) -> None:
    with contextlib.suppress(BadPost):
        read_post(json.dumps(value).encode())


NOTIFICATION = {
    "id": "31e9d66a-cd83-4174-9429-b932f1abe1be",
    "type": "Feature",
    "conformsTo": ["http://wis.wmo.int/spec/wnm/1/conf/core"],
    "geometry": {"type": "Point", "coordinates": [6.1, 46.2]},
    "properties": {
        "data_id": "ca-eccc/data/core/weather/A_SMSN",
        "pubtime": "2023-11-14T22:13:20.123Z",
        "datetime": "2023-11-14T22:00:00Z",
        "integrity": {"method": "sha512", "value": "AP8="},
        "content": {"encoding": "utf-8", "value": "hello", "size": 5},
    },
    "links": [
        {"rel": "canonical", "href": "https://h/d/a%20b.bufr", "type": "application/bufr"},
        {"rel": "via", "href": "https://elsewhere/"},
    ],
}


def test_a_wis2_notification_is_a_post() -> None:
    post = read_post(json.dumps(NOTIFICATION).encode())
    assert (post.base_url, post.relpath) == ("https://h/", "d/a b.bufr")
    assert post.moment == MOMENT
    assert post.sum == Checksum("s", "00ff")
    assert post.content == InlineContent(b"hello", "utf-8")


def test_a_wis2_notification_travels_as_it_is() -> None:
    post = read_post(json.dumps(NOTIFICATION).encode())
    assert codec_named("wis2").encode(post).body == NOTIFICATION


def test_a_deletion_in_wis2_is_a_removal() -> None:
    links = [{"rel": "deletion", "href": "https://h/d/f"}]
    post = read_post(json.dumps({**NOTIFICATION, "links": links}).encode())
    assert post.event is FileEvent.DELETE
    assert again(post, "wis2").event is FileEvent.DELETE


def test_the_same_announcement_has_the_same_id_in_wis2() -> None:
    post = Post(moment=MOMENT, base_url="http://h/", relpath="f", parts=Parts.whole(3))
    first, second = (codec_named("wis2").encode(post).body for _ in range(2))
    assert first == second
    assert again(post, "wis2").parts == Parts.whole(3)


def test_a_v02_post_says_the_same_in_v03() -> None:
    headers = {"sum": "d,00ff", "parts": "1,5,1,0,0", "flow": "x", "mode": "644"}
    post = read_post(b"20231114221320.123 http://h/ a/b", headers)
    assert again(post) == post


def test_a_move_as_sr3_writes_it() -> None:
    body = {
        "pubTime": "20240101T000000", "baseUrl": "file:/data/in", "relPath": "a/new",
        "fileOp": {"rename": "/data/in/a/old"},
    }  # fmt: skip
    assert codec_named("v03").decode(json.dumps(body).encode(), {}).oldname == "a/old"
    body["baseUrl"] = "http://h/"
    assert codec_named("v03").decode(json.dumps(body).encode(), {}).oldname == "/data/in/a/old"


def test_sr3_does_not_ignore_the_removal_that_is_half_of_a_move() -> None:
    """It ignores those with `newname` beside `fileOp`."""
    removal = Post(
        moment=0, base_url="http://h/", relpath="a/old", sum=removal_sum("old"), newname="a/new"
    )
    body = codec_named("v03").encode(removal).body
    assert isinstance(body, dict)
    assert "newname" not in body
    assert body["fileOp"] == {"remove": "", "newname": "a/new"}
    assert codec_named("v03").decode(json.dumps(body).encode(), {}).newname == "a/new"
    moved = Post(moment=0, base_url="http://h/", relpath="a/new", oldname="a/old")
    assert "fileOp" not in codec_named("v03").encode(moved).body
    body["newname"] = body.pop("fileOp")["newname"]
    body["fileOp"] = {"remove": ""}
    assert codec_named("v03").decode(json.dumps(body).encode(), {}).newname == "a/new"
