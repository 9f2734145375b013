"""How much one caller may ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock_hives.api.rate_limiter import TABLE_BYTES, RateLimiter, open_counters
from penstock_hives.errors import TooManyRequests
from penstock_hives.people.permissions import ANONYMOUS, Caller, UserRole


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def known(number: int) -> Caller:
    return Caller(number, "u", UserRole.USER, "free")


def test_a_burst_passes_and_then_a_steady_rate() -> None:
    clock = Clock()
    limits = RateLimiter(known=2, anonymous=1, burst=3, clock=clock)
    for _ in range(6):
        limits.take(known(1), "a")

    with pytest.raises(TooManyRequests) as refused:
        limits.take(known(1), "a")
    assert refused.value.retry_after == pytest.approx(0.5)

    clock.now = 0.5
    limits.take(known(1), "a")
    with pytest.raises(TooManyRequests):
        limits.take(known(1), "a")


def test_an_address_makes_so_many_accounts_in_an_hour() -> None:
    clock = Clock()
    limits = RateLimiter(known=2, anonymous=1, burst=3, clock=clock, accounts=4)
    for _ in range(4):
        limits.take_account("a")

    with pytest.raises(TooManyRequests, match="4 sign-ups and mails an hour") as refused:
        limits.take_account("a")
    assert refused.value.retry_after == pytest.approx(900)
    limits.take_account("b")
    limits.take(ANONYMOUS, "a")

    clock.now = 900.0
    limits.take_account("a")
    with pytest.raises(TooManyRequests):
        limits.take_account("a")


def test_callers_do_not_spend_each_others() -> None:
    limits = RateLimiter(known=1, anonymous=1, burst=1, clock=Clock())

    limits.take(known(1), "a")
    limits.take(known(2), "a")
    limits.take(ANONYMOUS, "a")
    limits.take(ANONYMOUS, "b")
    with pytest.raises(TooManyRequests):
        limits.take(ANONYMOUS, "b")


def test_workers_count_together_what_a_caller_asks(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "requests"
    workers = [RateLimiter(2, 1, 3, open_counters(file), clock) for _ in range(3)]
    for n in range(6):
        workers[n % 3].take(known(1), "a")

    for worker in workers:
        with pytest.raises(TooManyRequests):
            worker.take(known(1), "a")


def test_what_another_process_was_asked_counts_here(tmp_path: Path) -> None:
    file = tmp_path / "requests"
    program = f"""
from pathlib import Path
from penstock_hives.api.rate_limiter import RateLimiter, open_counters
from penstock_hives.people.permissions import ANONYMOUS
limits = RateLimiter(1e-6, 1e-6, 3e6, open_counters(Path({str(file)!r})))
for _ in range(3):
    limits.take(ANONYMOUS, "a")
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    with pytest.raises(TooManyRequests):
        RateLimiter(1e-6, 1e-6, 3e6, open_counters(file)).take(ANONYMOUS, "a")


def test_counts_of_before_the_machine_was_started_again_hold_nobody_up(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "requests"
    clock.now = 1e6  # up for days
    before = RateLimiter(1, 1, 1, open_counters(file), clock)
    before.take(known(1), "a")
    clock.now = 1.0  # and now for a second

    RateLimiter(1, 1, 1, open_counters(file), clock).take(known(1), "a")


def test_a_file_that_holds_something_else_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "requests"
    file.write_bytes(b"\xff" * TABLE_BYTES)

    limits = RateLimiter(1, 1, 1, open_counters(file), Clock())
    limits.take(known(1), "a")
    with pytest.raises(TooManyRequests):
        limits.take(known(1), "a")


def test_more_callers_than_the_table_holds_are_all_served() -> None:
    limits = RateLimiter(1, 1, 1, clock=Clock())
    for number in range(80_000):
        limits.take(known(number), "a")
