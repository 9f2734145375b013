"""A short version of the long run: each kind of fault once."""

from __future__ import annotations

import pytest

from tests.reliability.pipeline_kills import KINDS, campaign

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("java")]


def test_each_kind_of_fault_leaves_the_layers_of_an_undisturbed_run() -> None:
    with campaign() as opened:
        done = opened.run_round(seed=1000, faults=len(KINDS))

    assert sum(done.values()) >= len(KINDS) - 1, done  # at a moment there may be no worker
