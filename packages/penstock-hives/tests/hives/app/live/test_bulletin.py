"""The feed: numbered issues, gathered when there is much, the whole for who is behind."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.live.change_feed import ChangeFeed, EncodedOccupancy
from penstock_hives.live.endpoints import parse_resume_token


def figure(hive: int, version: int) -> EncodedOccupancy:
    return EncodedOccupancy(
        hive, version, json.dumps({"hive_id": hive, "version": version}).encode()
    )


def told(text: bytes | None) -> dict[int, int]:
    """Version by hive."""
    assert text is not None
    return {each["hive_id"]: each["version"] for each in json.loads(text)}


async def test_a_figure_goes_out_at_once_when_it_is_quiet() -> None:
    feed = ChangeFeed()
    issue = feed.next_batch()
    feed.publish(figure(7, 1))
    assert issue.done()
    assert told(feed.since(0, None)) == {7: 1}


async def test_figures_soon_after_are_gathered_the_last_of_each_hive() -> None:
    feed = ChangeFeed(pace=0.01)
    feed.publish(figure(7, 1))
    issue = feed.next_batch()
    for version in (2, 3):
        feed.publish(figure(7, version))
    feed.publish(figure(8, 1))
    assert not issue.done()
    await asyncio.wait_for(issue, 60)
    assert feed.number == 2
    assert told(feed.since(1, None)) == {7: 3, 8: 1}


async def test_an_issue_is_encoded_once_for_all_who_follow() -> None:
    feed = ChangeFeed()
    feed.publish(figure(7, 1))

    followers = [feed.since(0, None) for _ in range(3)]

    assert all(text is followers[0] for text in followers)


async def test_a_version_that_is_known_is_not_told_again() -> None:
    feed = ChangeFeed()
    assert feed.publish(figure(7, 2))
    assert not feed.publish(figure(7, 2))
    assert not feed.publish(figure(7, 1))
    assert feed.number == 1


async def test_who_follows_some_hives_hears_of_no_others() -> None:
    feed = ChangeFeed(pace=0)
    for hive in range(1, 6):
        feed.publish(figure(hive, 1))
        await asyncio.sleep(0.01)
    assert told(feed.since(0, {2, 4})) == {2: 1, 4: 1}
    assert {each.hive for each in feed.current({2, 4, 99})} == {2, 4}


async def test_who_is_too_far_behind_is_sent_to_the_whole() -> None:
    feed = ChangeFeed(pace=0, max_batches=3)
    for version in range(1, 7):
        issue = feed.next_batch()
        feed.publish(figure(7, version))
        await asyncio.wait_for(issue, 60)
    assert told(feed.since(3, None)) == {7: 6}
    assert feed.since(2, None) is None
    assert feed.since(99, None) is None  # a number it never gave out


async def test_silence_is_broken_by_an_empty_issue() -> None:
    feed = ChangeFeed(beat=0.01)
    issue = feed.next_batch()
    feed.open()
    await asyncio.wait_for(issue, 60)
    assert feed.since(0, None) == b"[]"
    feed.close()


async def test_the_end_wakes_all_who_wait() -> None:
    feed = ChangeFeed()
    issue = feed.next_batch()
    feed.close()
    assert issue.done()
    assert feed.next_batch().done()


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=40),
    st.sets(st.integers(1, 4)) | st.none(),
    st.integers(1, 5),
)
def test_a_follower_always_ends_with_the_last_figures(
    steps: list[tuple[int, bool]], wanted: set[int] | None, kept: int
) -> None:
    """However its reads fall between the issues, and however little is kept."""

    async def follow() -> None:
        feed = ChangeFeed(pace=0, max_batches=kept)
        seen: dict[int, int] = {}
        number = 0

        def read() -> None:
            nonlocal number
            news = feed.since(number, wanted)
            if news is None:
                seen.clear()
                seen.update({each.hive: each.version for each in feed.current(wanted)})
            else:
                seen.update(told(news))
            number = feed.number

        for version, (hive, reads) in enumerate(steps, 1):
            feed.publish(figure(hive, version))
            await asyncio.sleep(0)
            if reads:
                read()
        while feed._pending:  # what was gathered last
            await feed.next_batch()
        read()
        assert seen == {each.hive: each.version for each in feed.current(wanted)}

    asyncio.run(follow())


def test_a_place_is_one_of_this_bulletins_or_none() -> None:
    feed = ChangeFeed()
    name = feed.name.encode()
    assert parse_resume_token(name + b"-41", feed) == 41
    for strange in (None, b"", b"41", b"another-41", name + b"-", name + b"-x", name + b"-" * 3):
        assert parse_resume_token(strange, feed) is None
    assert (
        parse_resume_token(name + b"-" + b"9" * 5000, feed) is None
    )  # more than a number may have
