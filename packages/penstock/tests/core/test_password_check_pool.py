"""Who waits for whom when many passwords are to be checked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from penstock.core.errors import AuthenticationFailed
from penstock.core.passwords import (
    CHECK_BURST,
    MAX_CONCURRENT_CHECKS,
    MAX_TRACKED_ADDRESSES,
    MAX_WAITING_CHECKS,
    PasswordCheckPool,
)

NEAR, FAR = "127.0.0.1", "192.0.2.1"


class Bench:
    """A pool whose checks wait until they are let go, and write down the order they ran in."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pool = PasswordCheckPool(clock=lambda: self.now)
        self.go = threading.Event()
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[bool]] = []

    def check(self, name: str, address: str = NEAR, right: bool = False) -> asyncio.Task[bool]:
        def verify() -> bool:
            assert self.go.wait(60)
            self.order.append(name)
            return right

        task = asyncio.create_task(self.pool.run(address, name.encode(), verify))
        self.tasks.append(task)
        return task

    async def settled(self) -> None:
        """All that were asked for are in their queues."""
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def ended(condition: Callable[[], bool], tasks: list[asyncio.Task[bool]]) -> None:
    while not condition():
        done, _ = await asyncio.wait(
            [task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED
        )
        assert done


async def test_a_burst_of_wrong_passwords_delays_no_right_one(bench: Bench) -> None:
    for number in range(150):
        bench.check(f"wrong-{number}")
    await bench.settled()
    same = bench.check("right here", right=True)
    other = bench.check("right elsewhere", FAR, right=True)
    await bench.settled()

    bench.go.set()

    assert all(await asyncio.gather(same, other))
    before = {bench.order.index("right here"), bench.order.index("right elsewhere")}
    assert max(before) < MAX_CONCURRENT_CHECKS + 2  # behind those that ran already, and each other
    for task in bench.tasks:
        task.cancel()


async def test_addresses_take_turns(bench: Bench) -> None:
    for number in range(10):
        bench.check(f"near-{number}", right=True)
    for number in range(10):
        bench.check(f"far-{number}", FAR, right=True)
    await bench.settled()
    bench.go.set()
    await asyncio.gather(*bench.tasks)

    begun = [name.partition("-")[0] for name in bench.order[MAX_CONCURRENT_CHECKS:]]

    for place in range(2, 14, 2):  # two threads may write down their names in either order
        assert abs(begun[:place].count("near") - begun[:place].count("far")) <= 2


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("", "", True),
    ],
)
async def test_an_address_is_a_network_in_ipv6(
    bench: Bench, one: str, other: str, together: bool
) -> None:
    bench.go.set()
    await asyncio.gather(bench.check("a", one, True), bench.check("b", other, True))

    assert (len(bench.pool._queues) == 1) is together


async def test_failures_use_up_an_allowance_that_comes_back(bench: Bench) -> None:
    bench.go.set()
    for number in range(int(CHECK_BURST) + 5):
        bench.check(f"wrong-{number}")
    await ended(lambda: sum(task.done() for task in bench.tasks) >= CHECK_BURST, bench.tasks)
    await bench.settled()

    assert len(bench.order) == CHECK_BURST
    assert sum(not task.done() for task in bench.tasks) == 5
    assert await bench.check("right elsewhere", FAR, right=True)

    bench.now = 60.0
    assert await bench.check("right here", right=True)
    await asyncio.gather(*bench.tasks)


async def test_right_passwords_use_up_nothing(bench: Bench) -> None:
    bench.go.set()
    for number in range(int(CHECK_BURST) * 3):
        bench.check(f"right-{number}", right=True)

    assert all(await asyncio.gather(*bench.tasks))


async def test_those_who_ask_the_same_share_a_check(bench: Bench) -> None:
    same = [bench.check("same", right=True) for _ in range(50)]
    await bench.settled()
    same[0].cancel()
    bench.go.set()

    assert all(await asyncio.gather(*same[1:]))
    assert bench.order == ["same"]


async def test_whoever_goes_is_not_checked(bench: Bench) -> None:
    running = [bench.check(f"running-{number}") for number in range(MAX_CONCURRENT_CHECKS)]
    await bench.settled()
    gone = bench.check("gone")
    await bench.settled()
    gone.cancel()
    await bench.settled()
    bench.go.set()
    await asyncio.gather(*running)

    assert "gone" not in bench.order


async def test_a_full_queue_gives_up_its_oldest(bench: Bench) -> None:
    for number in range(MAX_CONCURRENT_CHECKS):
        bench.check(f"running-{number}")
    await bench.settled()
    oldest = bench.check("oldest")
    for number in range(MAX_WAITING_CHECKS):
        bench.check(f"wrong-{number}")

    with pytest.raises(AuthenticationFailed, match="too many pending logins"):
        await oldest
    bench.go.set()
    for task in bench.tasks:
        task.cancel()


async def test_a_check_that_fails_tells_why(bench: Bench) -> None:
    def broken() -> bool:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        await bench.pool.run(NEAR, b"x", broken)


async def test_addresses_at_rest_are_forgotten(bench: Bench) -> None:
    bench.go.set()
    for number in range(MAX_TRACKED_ADDRESSES + 1):
        await bench.check("right", f"host-{number}", right=True)

    assert len(bench.pool._queues) <= MAX_TRACKED_ADDRESSES
