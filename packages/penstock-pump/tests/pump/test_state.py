"""The state of a component: its own files, for one process at a time."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.core.errors import ResourceLocked
from penstock_pump.components.factory import open_component_factory
from penstock_pump.config.settings import PumpSettings, settings_of


def settings(state: Path, instance: int = 1) -> PumpSettings:
    given = {"component": "sarra", "name": "radar", "broker": "amqp://localhost/"}
    return settings_of({**given, "state": str(state), "instance": instance})


async def test_one_process_at_a_time_works_in_the_state_of_an_instance(tmp_path: Path) -> None:
    async with open_component_factory(settings(tmp_path)) as first:
        await first.retries()
        async with open_component_factory(settings(tmp_path)) as second:
            why = rf"in use by process {os.getpid()}: sarra radar, instance 1, is already running"
            with pytest.raises(ResourceLocked, match=why):
                await second.retries()
        async with open_component_factory(settings(tmp_path, 2)) as another:
            await another.retries()
    async with open_component_factory(settings(tmp_path)) as again:
        await again.retries()


async def test_nobody_else_may_read_the_state(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)
    async with open_component_factory(settings(state)) as factory:
        await factory.retries()
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
