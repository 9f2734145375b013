"""v02 as the page defines it, as programs send it, and whatever else may arrive."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pump.errors import BadPost
from penstock_pump.posts import Checksum, FileEvent, Parts, Post
from penstock_pump.posts.formats import read_post
from penstock_pump.posts.topics import mqtt_filter, mqtt_topic, routing_key, topic_words
from penstock_pump.posts.v02 import V02, V02Dialect

paths = st.text(
    st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), min_size=1, max_size=60
)
texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    paths,
    st.integers(0, 4_000_000_000 * 10**9),
    st.dictionaries(texts.map(lambda name: "x-" + name), texts),
)
def test_what_is_written_is_read_again(path: str, moment: int, extra: dict[str, str]) -> None:
    post_codec = V02(V02Dialect(exact_names=True))
    post = Post(
        moment=moment,
        base_url="http://host/",
        relpath=path,
        sum=Checksum("d", "00ff"),
        parts=Parts.whole(7),
        mode=0o640,
        mtime=moment,
        extra=extra,
    )
    encoded = post_codec.encode(post)
    assert isinstance(encoded.body, str)
    assert post_codec.decode(encoded.body.encode(), encoded.headers) == post


def test_the_seeds_watch_example() -> None:
    post = read_post(
        b"20150813161959.854 sftp://stanley@mysftpserver.com/ /data/shared/products/foo",
        {"parts": "1,256,1,0,0", "sum": "d,25d231ec0ae3c569ba27ab7a74dd72ce", "source": "guest"},
    )
    assert post.base_url == "sftp://stanley@mysftpserver.com/"
    assert post.relpath == "/data/shared/products/foo"
    assert post.parts == Parts.whole(256)
    assert post.sum == Checksum("d", "25d231ec0ae3c569ba27ab7a74dd72ce")
    assert post.source == "guest"
    assert post.event is FileEvent.MODIFY


def test_a_stamp_of_twelve_digits_as_in_the_seed() -> None:
    post = read_post(b"201506011357.345 http://h/ a\n", {})
    assert V02().encode(post).body == "20150601135700.345 http://h/ a"


def test_the_rest_of_the_line_and_of_the_body_is_ignored() -> None:
    post = read_post(b"20150601135700 http://h/ a more words\nand lines", {})
    assert post.relpath == "a"


def test_space_and_hash_are_escaped_and_nothing_else() -> None:
    post = Post(moment=0, base_url="http://h/", relpath="a b/c#d/é%?")
    assert V02().encode(post).body == "19700101000000 http://h/ a%20b/c%23d/é%?"


def test_with_exact_names_a_name_that_looks_escaped_keeps_its_meaning() -> None:
    exact = V02(V02Dialect(exact_names=True))
    body = exact.encode(Post(moment=0, base_url="http://h/", relpath="a%20b")).body
    assert body == "19700101000000 http://h/ a%2520b"
    assert exact.decode(str(body).encode(), {}).relpath == "a%20b"


def test_the_page_ends_the_body_with_a_newline() -> None:
    post = Post(moment=0, base_url="file:", relpath="/a")
    assert V02(V02Dialect(newline=True)).encode(post).body == "19700101000000 file: /a\n"


def test_headers_nobody_knows_travel_untouched() -> None:
    headers = {"flow": "exp13", "x-new": "1", "sum": "N,opaque"}
    post = read_post(b"20150601135700 http://h/ a", headers)
    assert dict(V02().encode(post).headers) == headers


@pytest.mark.parametrize(
    ("sum_text", "event"),
    [
        ("R,00", FileEvent.DELETE),
        ("L,00", FileEvent.LINK),
        ("m,00", FileEvent.MKDIR),
        ("r,00", FileEvent.RMDIR),
        ("d,00", FileEvent.MODIFY),
        ("0,1234", FileEvent.MODIFY),
        ("whatever,00", FileEvent.MODIFY),
    ],
)
def test_the_event_is_told_by_the_sum(sum_text: str, event: FileEvent) -> None:
    assert read_post(b"20150601135700 http://h/ a", {"sum": sum_text}).event is event


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"20150601135700 http://h/", {}),
        (b"20150601135700 http://h/ ", {}),
        (b"20151301135700 http://h/ a", {}),
        (b"yesterday http://h/ a", {}),
        (b"20150601135700 http://h/ a\x01b", {}),
        (b"20150601135700 http://h/ \xff", {}),
        (b"20150601135700 http://h/ a", {"sum": "d"}),
        (b"20150601135700 http://h/ a", {"mode": "rwx"}),
        (b"20150601135700 http://h/ a", {"mode": "77777"}),
        (b"20150601135700 http://h/ a", {"parts": "i,1,1"}),
        (b"20150601135700 http://h/ a", {"link": b"\xff"}),
        (b"20150601135700 http://h/ a", {"rename": "a\nb"}),
        (b"x" * (5 << 20), {}),
    ],
)
def test_what_is_no_post_is_refused(body: bytes, headers: dict[str, object]) -> None:
    with pytest.raises(BadPost):
        read_post(body, headers)


@given(st.binary(max_size=200), st.dictionaries(st.sampled_from(["sum", "parts", "mode"]), texts))
def test_any_bytes_are_a_post_or_a_bad_post(body: bytes, headers: dict[str, str]) -> None:
    with contextlib.suppress(BadPost):
        read_post(body, headers)


def test_a_value_too_long_for_v02_is_refused_as_its_clients_do() -> None:
    post = Post(moment=0, base_url="http://h/", relpath="a", link="x" * 253, sum=Checksum("L", "0"))
    with pytest.raises(BadPost, match="use v03"):
        V02().encode(post)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/a/b/c.txt", "v02.post.a.b"),
        ("c.txt", "v02.post"),
        ("a.d/b c/#/f", "v02.post.a.d.b%20c.%23"),
        ("a//b/f", "v02.post.a.b"),
        ("a../b/f", "v02.post.a.b"),
    ],
)
def test_topics_are_the_directories(path: str, key: str) -> None:
    assert routing_key("v02.post", topic_words(path)) == key


def test_the_seeds_topic_ends_with_the_name() -> None:
    words = topic_words("a/b/c/d/foo.txt", with_name=True)
    assert routing_key("v02.post", words) == "v02.post.a.b.c.d.foo.txt"


def test_a_topic_too_long_is_cut_between_characters() -> None:
    key = routing_key("v02.post", topic_words("é" * 200 + "/f"))
    assert len(key.encode()) <= 253
    assert key.endswith("é")


def test_topics_over_mqtt_begin_with_the_exchange() -> None:
    assert mqtt_topic("xpublic", "v03", topic_words("a.d/b/f")) == "xpublic/v03/a.d/b"
    assert mqtt_filter("xpublic", "v02.post", "a.*.#") == "xpublic/v02/post/a/+/#"
