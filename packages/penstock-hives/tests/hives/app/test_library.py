"""Library first: all there is can be had without a command."""

from __future__ import annotations

import subprocess
import sys

#: What takes reports in, reads them, counts, keeps, and serves.
PARTS = (
    "penstock_hives.sensors.protocol",
    "penstock_hives.occupancy.counts",
    "penstock_hives.occupancy.gold.ledger",
    "penstock_store.cache",
    "penstock_hives.server.application",
    "penstock_hives.server.master",
    "penstock_hives.alerts.worker",
)


def test_every_part_is_a_library_that_knows_no_command() -> None:
    lines = [f"import {part}" for part in PARTS]
    lines += ["import sys", "print('penstock.cli' in sys.modules)"]

    told = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )

    assert told.stdout.strip() == "False"
