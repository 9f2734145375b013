"""A short version of the long run."""

from __future__ import annotations

from tests.integration.amqp10.proton import need_proton
from tests.reliability.kills import run_round


def test_a_kill_under_the_load_of_all_protocols_breaks_no_promise() -> None:
    need_proton()
    run_round(seed=1000, kills=2)
