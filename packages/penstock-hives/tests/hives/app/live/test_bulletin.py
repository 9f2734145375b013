"""The bulletin: numbered issues, gathered when there is much, the whole for who is behind."""

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
    bulletin = ChangeFeed()
    issue = bulletin.next_issue()
    bulletin.tell(figure(7, 1))
    assert issue.done()
    assert told(bulletin.since(0, None)) == {7: 1}


async def test_figures_soon_after_are_gathered_the_last_of_each_hive() -> None:
    bulletin = ChangeFeed(pace=0.01)
    bulletin.tell(figure(7, 1))
    issue = bulletin.next_issue()
    for version in (2, 3):
        bulletin.tell(figure(7, version))
    bulletin.tell(figure(8, 1))
    assert not issue.done()
    await asyncio.wait_for(issue, 60)
    assert bulletin.number == 2
    assert told(bulletin.since(1, None)) == {7: 3, 8: 1}


async def test_an_issue_is_encoded_once_for_all_who_follow() -> None:
    bulletin = ChangeFeed()
    bulletin.tell(figure(7, 1))

    followers = [bulletin.since(0, None) for _ in range(3)]

    assert all(text is followers[0] for text in followers)


async def test_a_version_that_is_known_is_not_told_again() -> None:
    bulletin = ChangeFeed()
    assert bulletin.tell(figure(7, 2))
    assert not bulletin.tell(figure(7, 2))
    assert not bulletin.tell(figure(7, 1))
    assert bulletin.number == 1


async def test_who_follows_some_hives_hears_of_no_others() -> None:
    bulletin = ChangeFeed(pace=0)
    for hive in range(1, 6):
        bulletin.tell(figure(hive, 1))
        await asyncio.sleep(0.01)
    assert told(bulletin.since(0, {2, 4})) == {2: 1, 4: 1}
    assert {each.hive for each in bulletin.whole({2, 4, 99})} == {2, 4}


async def test_who_is_too_far_behind_is_sent_to_the_whole() -> None:
    bulletin = ChangeFeed(pace=0, kept=3)
    for version in range(1, 7):
        issue = bulletin.next_issue()
        bulletin.tell(figure(7, version))
        await asyncio.wait_for(issue, 60)
    assert told(bulletin.since(3, None)) == {7: 6}
    assert bulletin.since(2, None) is None
    assert bulletin.since(99, None) is None  # a number it never gave out


async def test_silence_is_broken_by_an_empty_issue() -> None:
    bulletin = ChangeFeed(beat=0.01)
    issue = bulletin.next_issue()
    bulletin.open()
    await asyncio.wait_for(issue, 60)
    assert bulletin.since(0, None) == b"[]"
    bulletin.close()


async def test_the_end_wakes_all_who_wait() -> None:
    bulletin = ChangeFeed()
    issue = bulletin.next_issue()
    bulletin.close()
    assert issue.done()
    assert bulletin.next_issue().done()


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
        bulletin = ChangeFeed(pace=0, kept=kept)
        seen: dict[int, int] = {}
        number = 0

        def read() -> None:
            nonlocal number
            news = bulletin.since(number, wanted)
            if news is None:
                seen.clear()
                seen.update({each.hive: each.version for each in bulletin.whole(wanted)})
            else:
                seen.update(told(news))
            number = bulletin.number

        for version, (hive, reads) in enumerate(steps, 1):
            bulletin.tell(figure(hive, version))
            await asyncio.sleep(0)
            if reads:
                read()
        while bulletin._pending:  # what was gathered last
            await bulletin.next_issue()
        read()
        assert seen == {each.hive: each.version for each in bulletin.whole(wanted)}

    asyncio.run(follow())


def test_a_place_is_one_of_this_bulletins_or_none() -> None:
    bulletin = ChangeFeed()
    name = bulletin.name.encode()
    assert parse_resume_token(name + b"-41", bulletin) == 41
    for strange in (None, b"", b"41", b"another-41", name + b"-", name + b"-x", name + b"-" * 3):
        assert parse_resume_token(strange, bulletin) is None
    assert (
        parse_resume_token(name + b"-" + b"9" * 5000, bulletin) is None
    )  # more than a number may have
