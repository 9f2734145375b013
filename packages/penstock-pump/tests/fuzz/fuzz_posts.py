"""Fuzzes posts of the pump, of every format.

    PYTHONPATH=. python packages/penstock-pump/tests/fuzz/fuzz_posts.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of a reader, headers, and a body of JSON or
text. A reader may refuse it by the error it promises; anything else is a finding. What a codec
reads must survive being written and read again.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_pump.posts"]):
    import json
    from contextlib import suppress
    from dataclasses import asdict
    from typing import Any

    from penstock_pump.errors import BadPost
    from penstock_pump.posts.formats import codec_named, read_post
    from tests.fuzz_input import Choices, run_fuzzer

KEYS = (
    *("pubTime", "baseUrl", "relPath", "identity", "integrity", "method", "value", "size", "atime"),
    *("mtime", "mode", "blocks", "number", "remainder", "content", "encoding", "fileOp", "link"),
    *("rename", "source", "to_clusters", "from_cluster", "topic", "subtopic", "retrievePath"),
    *(
        "sum",
        "parts",
        "oldname",
        "newname",
        "flow",
        "message",
        "rel_path",
        "id",
        "type",
        "geometry",
    ),
    *("properties", "links", "href", "rel", "data_id", "pubtime", "datetime", "length", "version"),
    *("manifest", "hash", "start_datetime", "conformsTo", "contentType", "report", "code"),
)
WORDS = (
    *("20150813161959.854", "20150813T161959.854", "2026-05-31T12:00:00Z", "http://h/", "a/b.txt"),
    *("1,5,1,0,0", "i,5,2,1,0", "d,abc", "R,7", "s,", "0,x", "L,y", "sha512", "md5", "none", "cod"),
    *("base64", "utf-8", "YQ==", "644", "0100644", "1", "-1", "/etc/passwd", "../x", "Feature"),
    *("v03", "canonical", "update", "embedded", "inplace", "p,1,2,3,4", "é", "\x00", "%", "a,b"),
)
FORMATS = ("v02", "v03", "wis2")


def fuzz_post(choices: Choices) -> None:
    """A body of JSON or text with headers, as they come from a broker."""
    headers: dict[str, Any] = choices.object(KEYS, WORDS)
    body = choices.body(KEYS, WORDS)
    with suppress(BadPost):
        read_post(body, headers)


def fuzz_codec(choices: Choices) -> None:
    codec = codec_named(choices.one_of(FORMATS))
    headers: dict[str, Any] = choices.object(KEYS, WORDS)
    with suppress(BadPost):
        post = codec.decode(choices.body(KEYS, WORDS), headers)
        encoded = codec.encode(post)
        again = codec.decode(_body(encoded), encoded.headers)
        written = codec.encode(again)
        assert asdict(codec.decode(_body(written), written.headers)) == asdict(again)


def _body(encoded: Any) -> bytes:
    body = encoded.body if isinstance(encoded.body, str) else json.dumps(encoded.body)
    return body.encode()


TARGETS = (fuzz_post, fuzz_codec)


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    choices.one_of(TARGETS)(choices)


if __name__ == "__main__":
    run_fuzzer(fuzz)
