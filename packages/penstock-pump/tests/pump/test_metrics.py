"""A component's figures, for Prometheus and for `status`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import generate_latest

from penstock_pump.components import ComponentControl
from penstock_pump.config.settings import settings_of
from penstock_pump.metrics import registry
from penstock_pump.status import read_status, write_status_regularly
from penstock_pump.transfer import CountingWriter, TransferRegistry


def busy() -> ComponentControl:
    control = ComponentControl()
    control.ready.set()
    counters = control.counters
    counters.received, counters.postponed, counters.lag, counters.queued, counters.bytes = (
        12,
        1,
        0.5,
        7,
        2048,
    )
    counters.codes.update({201: 9, 503: 1})
    counters.rejected.update({"reject .*tmp": 2})
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
    control.counters.queued = None
    settings = settings_of({"component": "sarra"})
    assert "queue_messages" not in generate_latest(registry(settings, control)).decode()


async def test_how_it_stands_is_kept_beside_its_state(tmp_path: Path) -> None:
    settings = settings_of({"component": "sarra", "state": tmp_path})
    control = busy()
    keeping = asyncio.create_task(write_status_regularly(settings, control))
    async with asyncio.timeout(60):
        while (current_status := read_status(settings)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert current_status.running
    assert (current_status.received, current_status.queued, current_status.bytes) == (12, 7, 2048)
    assert current_status.rejected == {"reject .*tmp": 2}
    assert read_status(settings) is None


def test_a_transfer_counts_what_is_written_and_goes_when_it_ends() -> None:
    class Into:
        def write(self, data: bytes | bytearray | memoryview) -> None:
            return

    transfers = TransferRegistry()
    transfer = transfers.add("big", 100)
    assert transfers.longer_than(0.0) == []  # it waits for its turn
    transfer.start()
    CountingWriter(Into(), transfer).write(b"x" * 30)
    assert [(each.name, each.done, each.total) for each in transfers.longer_than(0.0)] == [
        ("big", 30, 100)
    ]
    assert transfers.longer_than(3600.0) == []
    transfers.remove(transfer)
    assert transfers.longer_than(0.0) == []
