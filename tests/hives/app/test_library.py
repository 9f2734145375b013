"""Library first: all there is can be had without a command."""

from __future__ import annotations

import subprocess
import sys

#: What takes reports in, reads them, counts, keeps, and serves.
PARTS = (
    "penstock.hives.sensors.messages",
    "penstock.hives.steps.counting",
    "penstock.hives.gold.books",
    "penstock.store.cache",
    "penstock.hives.app.serve",
    "penstock.hives.app.engine.master",
    "penstock.hives.app.alerts.watch",
)


def test_every_part_is_a_library_that_knows_no_command() -> None:
    lines = [f"import {part}" for part in PARTS]
    lines += ["import sys", "print('penstock.cli' in sys.modules)"]

    told = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )

    assert told.stdout.strip() == "False"
