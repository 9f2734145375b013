"""Each entry point of a plugin is called by sr3 and by Penstock, with the same messages."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.pump.running import until
from tests.integration.pump.sarracenia import Sarracenia
from tests.integration.pump.test_shipped_callbacks import (
    announce,
    consuming,
    program,
    write,
)
from tests.peers import Penstock
from tests.pump.servers import serving

__all__ = ["program"]  # the fixture

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

RECORDER = """
import os
from sarracenia.flowcb import FlowCB

class Recorder(FlowCB):
    def __init__(self, options):
        super().__init__(options)
        self.o.add_option('recorder_file', 'str', '')

    def record(self, event, *words):
        with open(self.o.recorder_file, 'a') as file:
            file.write(' '.join((event, *map(str, words))) + os.linesep)

    def after_gather(self, worklist):
        kept = []
        for m in worklist.incoming:
            self.record('after_gather', m['relPath'])
            if 'early' in m['relPath']:
                m.setReport(304, 'too early')
                worklist.rejected.append(m)
            else:
                kept.append(m)
        worklist.incoming = kept

    def after_accept(self, worklist):
        for m in worklist.incoming:
            self.record('after_accept', m['relPath'])

    def after_work(self, worklist):
        for m in worklist.ok:
            self.record('after_work', m['new_file'])

    def post(self, worklist):
        for m in worklist.ok:
            self.record('post', m['relPath'])

    def after_post(self, worklist):
        for m in worklist.ok:
            self.record('after_post', m['relPath'])

    def report(self, worklist):
        for m in worklist.ok:
            self.record('report', m['relPath'], m['report']['code'])

    def on_start(self):
        self.record('on_start')

    def please_stop(self):
        super().please_stop()
        self.record('please_stop', self.stop_requested)

    def on_stop(self):
        self.record('on_stop')

    def on_declare(self):
        self.record('on_declare')

    def on_cleanup(self):
        self.record('on_cleanup')
"""


def lines(file: Path) -> set[str]:
    return set(file.read_text().splitlines()) if file.exists() else set()


async def test_every_entry_point_is_called(
    program: Sarracenia, penstock: Penstock, name: str, tmp_path: Path
) -> None:
    there, here = write(tmp_path / "there", "a.txt", "early.txt", "other.dat"), tmp_path / "here"
    here.mkdir()
    plugins = write(tmp_path / "home" / "config" / "sr3" / "plugins")
    (plugins / "recorder.py").write_text(RECORDER)
    record = tmp_path / "record"
    text = (
        f"callback recorder\nrecorder_file {record}\ndirectory {here}\naccept .*txt\n"
        f"acceptUnmatched off\npost_broker {program.broker}\npost_exchange y{name}\n"
        f"post_baseUrl http://me/\npost_baseDir {here}\n"
    )
    with serving(there) as server:
        async with consuming(program, penstock, name, "subscribe", text, end=signal.SIGTERM):
            await announce(penstock, name, tmp_path / "p", there, server.url)
            await until(lambda: "report a.txt 201" in lines(record))
    expected = {
        *(f"after_gather {each}" for each in ("a.txt", "early.txt", "other.dat")),
        *("after_accept a.txt", "after_work a.txt", "post a.txt", "after_post a.txt"),
        *("report a.txt 201", "on_start", "please_stop True", "on_stop"),
    }
    await until(lambda: expected <= lines(record))
    await program.run("sr3", "declare", "subscribe/t")
    await program.run("sr3", "cleanup", "subscribe/t")
    assert lines(record) == {*expected, "on_declare", "on_cleanup"}
    assert [path.name for path in here.iterdir()] == ["a.txt"]
