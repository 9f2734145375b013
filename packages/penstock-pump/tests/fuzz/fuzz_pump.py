"""Fuzzes the pump: configurations of Sarracenia (v2, sr3), credentials, posts of every format.

    PYTHONPATH=. python packages/penstock-pump/tests/fuzz/fuzz_pump.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of a reader and a text, of whose bytes some are
options and values. A reader may refuse it by the error it promises; anything else is a finding.
What a codec reads must survive being written and read again.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_pump"]):
    import json
    import tempfile
    from contextlib import suppress
    from dataclasses import asdict
    from pathlib import Path
    from typing import Any

    from penstock.core.config import LogSettings
    from penstock.core.errors import ConfigurationError
    from penstock.core.logs import configure_logs
    from penstock_pump.config import sarracenia
    from penstock_pump.config.options import OPTIONS
    from penstock_pump.config.sarracenia import read_conf
    from penstock_pump.config.settings import Component
    from penstock_pump.credentials import parse_credentials
    from penstock_pump.errors import BadPost
    from penstock_pump.posts.formats import codec_named, read_post
    from tests.fuzz_input import Choices, compose_text, memory_folder, run_fuzzer

NAMES = tuple(option.name for option in OPTIONS.values())
VALUES = (
    *("amqps://user:pw@host/vhost", "mqtt://h", "sftp://h/", "file:/", "on", "off", "None", "0"),
    *("1", "-1", "1e9", "9" * 30, "10s", "1d", "5M", "#", "*.csv", "(", "[", ".*", "${HOME}"),
    *("${YYYYMMDD}", "${BROKER_USER}", "xpublic", "v02.post", "v03", "WHATFN", "DESTFN=x", "\n"),
    *("sha512", "md5", "cod,md5", "n", "\t", "é", "\x00", "'", '"', "include x", "accept .*\n"),
    *("subtopic #\n", "directory /tmp/x\n", "env A=b", "source @all", "append", ".tmp", "0o755"),
)
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
HOME = Path(tempfile.mkdtemp(dir=memory_folder()))
for component in Component:
    (HOME / component).mkdir()
configure_logs(LogSettings(level="error"))
# Names like an unknown one, for its error message: they take longer than the rest.
vars(sarracenia)["get_close_matches"] = lambda *_: []


def fuzz_options(choices: Choices) -> None:
    """Options that exist, mostly."""
    lines = []
    for _ in range(1 + choices.number(6)):
        name = choices.one_of(NAMES) if choices.number(8) else choices.text(NAMES)
        lines.append(f"{name} {choices.text(VALUES)}")
    _read(choices.one_of(tuple(Component)), "\n".join(lines).encode("utf-8", "surrogatepass"))


def fuzz_configuration(choices: Choices) -> None:
    component = choices.one_of(tuple(Component))
    _read(component, compose_text(choices.rest(), (*VALUES, *NAMES[:60])).encode())


def fuzz_configuration_bytes(choices: Choices) -> None:
    _read(choices.one_of(tuple(Component)), choices.rest())


def _read(component: Component, text: bytes) -> None:
    path = HOME / component / "fuzzed.conf"
    path.write_bytes(text)
    with suppress(ConfigurationError):
        read_conf(path)


def fuzz_credentials(choices: Choices) -> None:
    lines = compose_text(choices.rest(), VALUES).splitlines()
    with suppress(ConfigurationError):
        parse_credentials(lines, "credentials.conf").find("sftp://user@host/path")


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
        body = encoded.body if isinstance(encoded.body, str) else json.dumps(encoded.body)
        again = codec.decode(body.encode(), encoded.headers)
        assert asdict(codec.decode(_body(codec.encode(again)), codec.encode(again).headers)) == (
            asdict(again)
        )


def _body(encoded: Any) -> bytes:
    body = encoded.body if isinstance(encoded.body, str) else json.dumps(encoded.body)
    return body.encode()


TARGETS = (
    *(fuzz_options, fuzz_configuration, fuzz_configuration_bytes, fuzz_credentials),
    *(fuzz_post, fuzz_codec),
)


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    choices.one_of(TARGETS)(choices)


if __name__ == "__main__":
    run_fuzzer(fuzz)
