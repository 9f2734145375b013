"""A component's figures, for Prometheus and for `status`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import generate_latest

from penstock.pump.components import Control
from penstock.pump.config.settings import settings_of
from penstock.pump.metrics import registry
from penstock.pump.standing import keep_standing, read_standing
from penstock.pump.transfers import Counted, Transfers


def busy() -> Control:
    control = Control()
    control.ready.set()
    tally = control.tally
    tally.heard, tally.postponed, tally.lag, tally.queued, tally.bytes = 12, 1, 0.5, 7, 2048
    tally.codes.update({201: 9, 503: 1})
    tally.rejected.update({"reject .*tmp": 2})
    return control


def test_what_is_heard_done_rejected_and_waiting_is_told() -> None:
    settings = settings_of({"component": "sarra", "name": "radar"})
    told = generate_latest(registry(settings, busy())).decode()
    labels = 'component="sarra",instance="1",name="radar"'
    for line in (
        f"penstock_pump_messages_total{{{labels}}} 12.0",
        f"penstock_pump_bytes_total{{{labels}}} 2048.0",
        f"penstock_pump_queue_messages{{{labels}}} 7.0",
        f"penstock_pump_lag_seconds{{{labels}}} 0.5",
        f'penstock_pump_outcomes_total{{code="503",{labels}}} 1.0',
        'reason="reject .*tmp"} 2.0',
    ):
        assert line in told


def test_a_queue_nobody_tells_the_depth_of_has_no_figure() -> None:
    control = busy()
    control.tally.queued = None
    settings = settings_of({"component": "sarra"})
    assert "queue_messages" not in generate_latest(registry(settings, control)).decode()


async def test_how_it_stands_is_kept_beside_its_state(tmp_path: Path) -> None:
    settings = settings_of({"component": "sarra", "state": tmp_path})
    control = busy()
    keeping = asyncio.create_task(keep_standing(settings, control))
    async with asyncio.timeout(60):
        while (standing := read_standing(settings)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert standing.running
    assert (standing.heard, standing.queued, standing.bytes) == (12, 7, 2048)
    assert standing.rejected == {"reject .*tmp": 2}
    assert read_standing(settings) is None


def test_a_transfer_counts_what_is_written_and_goes_when_it_ends() -> None:
    class Into:
        def write(self, data: bytes | bytearray | memoryview) -> None:
            return

    transfers = Transfers()
    transfer = transfers.enter("big", 100)
    assert transfers.long(0.0) == []  # it waits for its turn
    transfer.begin()
    Counted(Into(), transfer).write(b"x" * 30)
    assert [(each.name, each.done, each.total) for each in transfers.long(0.0)] == [
        ("big", 30, 100)
    ]
    assert transfers.long(3600.0) == []
    transfers.leave(transfer)
    assert transfers.long(0.0) == []
