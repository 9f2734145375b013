"""Confirms in any order, of one or of many: each message hears its own."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.amqp091.channel import PublisherConfirms
from penstock.core.errors import PenstockError, QueueFull

#: A publish; or a word of the broker's about a number: whether it is for all up to it, and refuses.
steps = st.lists(st.none() | st.tuples(st.integers(1, 12), st.booleans(), st.booleans()))


@given(steps)
def test_each_message_hears_the_first_word_that_is_for_it(
    told: list[tuple[int, bool, bool] | None],
) -> None:
    async def tell() -> None:
        confirms = PublisherConfirms()
        outcomes: list[list[PenstockError | None]] = []
        expected: dict[int, bool] = {}  # the obvious way
        for step in told:
            if step is None:
                outcomes.append([])
                confirms.add_awaited(b"\x00\x00", b"", outcomes[-1].append)
                continue
            tag, multiple, refused = step
            confirms.settle(tag, multiple=multiple, refused=refused)
            for number in range(1, len(outcomes) + 1):
                if number == tag or (multiple and number < tag):
                    expected.setdefault(number, refused)

        for number, found in enumerate(outcomes, 1):
            refusals = [isinstance(error, QueueFull) for error in found]
            assert refusals == ([expected[number]] if number in expected else [])
        assert confirms.open == len(outcomes) - len(expected)

    asyncio.run(tell())


@given(steps, st.integers(0, 6))
def test_room_is_there_as_soon_as_there_is_and_no_sooner(
    told: list[tuple[int, bool, bool] | None], most: int
) -> None:
    async def tell() -> None:
        confirms = PublisherConfirms()
        for step in told:
            if step is None:
                confirms.add(b"\x00\x00", b"", mandatory=False)
                continue
            waiting = asyncio.ensure_future(confirms.wait(most))
            await asyncio.sleep(0)
            assert waiting.done() == (confirms.open <= most)
            confirms.settle(step[0], multiple=step[1], refused=False)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert waiting.done() == (confirms.open <= most)
            waiting.cancel()

    asyncio.run(tell())
