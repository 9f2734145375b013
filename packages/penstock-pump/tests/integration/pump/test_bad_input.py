"""Whatever a stranger announces, or a server sends: refused or tried again, with a code; nothing is
written outside the directory, and nothing wrong has its final name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from penstock_pump.components import report, subscribe
from penstock_pump.posts.reports import PostReport
from tests.integration.pump.running import running, settings, until
from tests.peers import Penstock
from tests.pump.servers import FileServer, serving

DATA = b"what was announced\n"
SUM = "s," + hashlib.sha512(DATA).hexdigest()
WHOLE = f"1,{len(DATA)},1,0,0"


@dataclass(frozen=True)
class Bad:
    """A message, how the server misbehaves, and the code that tells of it."""

    code: int
    path: str = "d/f"
    headers: dict[str, str] = field(default_factory=lambda: {"sum": SUM, "parts": WHOLE})
    body: bytes | None = None  #: instead of one that is made of the path
    fault: str = ""
    rules: dict[str, Any] = field(default_factory=dict)
    reported: bool = True  #: what cannot be read has nobody to report to


def announced(**headers: str) -> dict[str, str]:
    return {"sum": SUM, "parts": WHOLE, **headers}


LINE = b"20261115120000 http://127.0.0.1:9/ "
CASES = {
    "a path that climbs out": Bad(417, "../f"),
    "a path that climbs out from within": Bad(417, "d/../../f"),
    "a new name that climbs out": Bad(417, headers=announced(rename="../../f")),
    "a link that points out": Bad(417, headers={"sum": "L,1", "link": "../../../etc/passwd"}),
    "a link that points to an absolute path": Bad(417, headers={"sum": "L,1", "link": "/etc"}),
    "a way over a link that leads out": Bad(417, "out/f"),
    "a removal over a link that leads out": Bad(417, "out/there", headers={"sum": "R,1"}),
    "a source that is no name": Bad(
        417, headers=announced(source="../.."), rules={"directory": "${SOURCE}"}
    ),
    "a line's end in a name": Bad(417, body=LINE + b"d/f%0a\x0bg", reported=False),
    "a newline in a name": Bad(
        417,
        body=rb'{"pubTime": "20261115T120000", "baseUrl": "http://h/", "relPath": "d/f\ng"}',
        reported=False,
    ),
    "a newline in a new name": Bad(417, headers=announced(rename="d/f\ng"), reported=False),
    "a name that is not UTF-8": Bad(417, body=LINE + b"d/\xff\xfe", reported=False),
    "no post at all": Bad(417, body=b"\x00\x01", reported=False),
    "a post that is not JSON": Bad(417, body=b'{"pubTime": ', reported=False),
    "parts that lie about their number": Bad(
        417, headers=announced(parts="i,10,2,9,2"), reported=False
    ),
    "parts that lie about the rest": Bad(
        417, headers=announced(parts="i,10,2,11,1"), reported=False
    ),
    "parts of a file no disk could hold": Bad(
        417, headers=announced(parts="i,4611686018427387904,2,0,0"), reported=False
    ),
    "a size that is not true": Bad(499, headers=announced(parts="1,5,1,0,0")),
    "a sum that is not true": Bad(499, headers=announced(sum="s," + "0" * 128)),
    "a host that is not allowed": Bad(417, rules={"private_hosts": False}),
    "a file of this machine": Bad(
        417,
        body=b'{"pubTime": "20261115T120000", "baseUrl": "file:", "relPath": "%(file)s"}',
        rules={"file_directories": []},
    ),
    "a file of this machine, by where to retrieve it": Bad(
        417,
        body=b'{"pubTime": "20261115T120000", "baseUrl": "file:", "relPath": "d/f",'
        b' "retrievePath": "%(file)s"}',
        rules={"file_directories": []},
    ),
    "a file beside a listed directory": Bad(
        417, body=b"20261115120000 file: %(file)s", rules={"file_directories": ["/usr"]}
    ),
    "a name that is too long": Bad(417, "d/" + "x" * 300),
    "a directory whose name is too long": Bad(417, "d" * 300 + "/f"),
    "a removal of a name that is too long": Bad(417, "x" * 300, headers={"sum": "R,1"}),
    "a link whose name is too long": Bad(417, "x" * 300, headers={"sum": "L,1", "link": "f"}),
    "a directory to make whose name is too long": Bad(417, "x" * 300, headers={"sum": "m,1"}),
    "a link to a name that is too long": Bad(
        417, headers={"sum": "L,1", "link": "x" * 5000}, reported=False
    ),
    "a name with half a character": Bad(
        417,
        body=rb'{"pubTime": "20261115T120000", "baseUrl": "http://h/", "relPath": "d/\ud800"}',
        reported=False,
    ),
    "a server that sends too much": Bad(499, fault="more"),
    "a server that sends too little": Bad(499, fault="less"),
    "a server that sends another file": Bad(499, fault="other"),
    "a server that breaks off": Bad(503, fault="die"),
    "a server that stalls": Bad(503, fault="stall", rules={"timeout": 1.0}),
    "a server that has not got it": Bad(499, fault="404"),
    "a server that is broken": Bad(503, fault="500"),
    "a server that sends us round in circles": Bad(503, fault="to:/d/f"),
    "a scheme nobody speaks": Bad(503, body=b"20261115120000 gopher://127.0.0.1/ d/f"),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    (tmp_path / "there" / "d").mkdir(parents=True)
    (tmp_path / "there" / "d" / "f").write_bytes(DATA)
    with serving(tmp_path / "there") as found:
        yield found


@pytest.mark.parametrize("bad", CASES.values(), ids=CASES.keys())
async def test_it_is_refused_and_told(
    bad: Bad, penstock: Penstock, name: str, server: FileServer, tmp_path: Path
) -> None:
    here, outside = tmp_path / "outside" / "here", tmp_path / "outside"
    here.mkdir(parents=True)
    (outside / "there").write_bytes(b"ours")
    (here / "out").symlink_to("..")
    server.faults = [bad.fault] * 10 if bad.fault else []
    body = bad.body or f"20261115120000 {server.url} {bad.path}".encode()
    body = body.replace(b"%(file)s", os.fsencode(tmp_path / "there" / "d" / "f"))
    rules = {**bad.rules}
    rules["directory"] = str(here / rules.get("directory", ""))
    fetches = settings(
        "subscribe", penstock.url, tmp_path / "s", exchange=f"x{name}", mirror=True,
        attempts=1, report_exchange=f"x{name}r", **rules,
    )  # fmt: skip
    listens = settings("report", penstock.url, tmp_path / "r", exchange=f"x{name}r")
    told: list[PostReport] = []
    async with (
        running(report, listens, on_report=told.append),
        running(subscribe, fetches) as control,
    ):
        async with connect(penstock.url) as fabric:
            await fabric.publish("v02.post.d", body, headers=bad.headers, exchange=f"x{name}")
        await until(lambda: control.counters.codes.total() > 0)
        if bad.reported:
            await until(lambda: len(told) > 0)
        server.stalled.set()
    assert set(control.counters.codes) == {bad.code}
    assert {each.code for each in told} == ({bad.code} if bad.reported else set())
    assert sorted(path.name for path in outside.iterdir()) == ["here", "there"]
    assert (outside / "there").read_bytes() == b"ours"
    assert [name for _, _, names in os.walk(here) for name in names] == []
