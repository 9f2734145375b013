"""The search: its order page by page, what it tolerates, and how fresh its figures are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_hives.database import DatabasePool
from penstock_hives.errors import NotReady
from penstock_hives.pagination import CursorPage
from penstock_hives.places.models import GeoPoint, HiveQuery, HiveSnapshot, HiveSort, HiveSummary
from penstock_hives.places.search import search_hives
from penstock_hives.places.search_text import plain_text, word_patterns
from penstock_hives.places.service import HiveService
from penstock_store import Database
from tests.hives.app.world import NOON

WORDS = ("amber", "blue bar", "comb_store", "Comb 100%", "Blue", "zest", "Café Zoë", "7 Bees")
CITIES = ("Tokyo", "São Paulo", "Zürich", "")
ZIPS = ("10115", "10178", "14467", "w1a", "")


@pytest.fixture(scope="module")
def furnished(database: Database) -> Database:
    database.execute("INSERT INTO account (id, name) VALUES (1, 'a')")
    for number, code in enumerate(("bar", "store"), 1):
        database.execute(
            "INSERT INTO hive_type (id, code, name) VALUES (%s, %s, %s)", (number, code, code)
        )
    for n in range(1, 41):
        where = (None, None) if n % 7 == 0 else (52 + n % 5 / 10, 13 + n % 9 / 10)
        database.execute(
            "INSERT INTO address (id, city, zip, lat, lon) VALUES (%s, %s, %s, %s, %s)",
            (n, CITIES[n % len(CITIES)], ZIPS[n % len(ZIPS)], *where),
        )
        hours = '{"mon": [["09:00", "18:00"]]}' if n % 3 else "{}"
        database.execute(
            """
            INSERT INTO hive (id, account_id, address_id, hive_type_id, name, time_zone,
                              opening_hours, public)
            VALUES (%s, 1, %s, %s, %s, 'Europe/Berlin', %s, %s)
            """,
            (n, None if n % 11 == 0 else n, n % 2 + 1, WORDS[n % len(WORDS)], hours, n % 13 != 0),
        )
        if n % 4:
            database.execute(
                "INSERT INTO hive_status VALUES (%s, 5, 5, %s, 'quiet', 'steady', 'good', %s, 1)",
                (n, float(n % 5), NOON),
            )
    return database


SEARCHES = (
    *("cafe", "CAFÉ", "kafe", "cafr tokyo", "zurch", "tokio bar", "7 bees", "bees 7", "101"),
    *("sao paulo", "zset", "zoe", "%", "_", "a|b", "(", "store 14467", "blu", "amebr"),
)
queries = st.builds(
    HiveQuery,
    q=st.none() | st.sampled_from(SEARCHES),
    name=st.none() | st.sampled_from(["blue", "BAR", "comb_", "%", "0%", "nothing", "e s"]),
    type=st.none() | st.sampled_from(["bar", "store", "none"]),
    zip=st.none() | st.sampled_from(["10", "14467", "W1", "x"]),
    near=st.just(GeoPoint(52.2, 13.3)),
    within_km=st.none() | st.floats(1, 100),
    open_now=st.none() | st.booleans(),
    sort=st.sampled_from(HiveSort),
    limit=st.integers(1, 12),
)


def test_callers_with_live_figures_find_the_same_as_others(furnished: Database) -> None:
    async def compare(
        check: Callable[[HiveService, HiveSnapshot, asyncio.AbstractEventLoop], None],
    ) -> None:
        async with DatabasePool(furnished.url, 2, wait=60) as pool:
            hives = HiveService(pool, lambda: NOON)
            everything = await hives.snapshot()
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(check, hives, everything, loop)

    def check(
        hives: HiveService, everything: HiveSnapshot, loop: asyncio.AbstractEventLoop
    ) -> None:
        @settings(max_examples=60)
        @given(queries)
        def same(query: HiveQuery) -> None:
            def asked(wanted: HiveQuery) -> CursorPage[HiveSummary]:
                return asyncio.run_coroutine_threadsafe(hives.search(wanted), loop).result(60)

            def remembered(wanted: HiveQuery) -> CursorPage[HiveSummary]:
                return search_hives(everything.summaries, wanted)

            assert _all(asked, query) == _all(remembered, query)

        same()

    asyncio.run(compare(check))


def test_pages_are_one_list_in_the_order_asked_for(furnished: Database) -> None:
    async def read() -> HiveSnapshot:
        async with DatabasePool(furnished.url, 1, wait=60) as pool:
            return await HiveService(pool, lambda: NOON).snapshot()

    everything = asyncio.run(read()).summaries

    @settings(max_examples=100)
    @given(queries)
    def ordered(query: HiveQuery) -> None:
        found = _all(lambda wanted: search_hives(everything, wanted), query)
        assert len({hive.id for hive in found}) == len(found)
        assert found == sorted(found, key=lambda hive: expected_key(hive, query.order))
        left_out = {hive.id for hive in everything} - {hive.id for hive in found}
        if query == HiveQuery(near=query.near, sort=query.sort, limit=query.limit):
            assert not left_out

    ordered()


def expected_key(hive: HiveSummary, sort: HiveSort) -> tuple[object, ...]:
    """Places whose figure is not known come after those whose figure is; closed ones last."""
    if sort is HiveSort.NAME:
        return hive.name.lower(), hive.id
    if sort is HiveSort.DISTANCE:
        if hive.address is None or hive.address.point is None:
            return True, 0.0, hive.id
        return False, GeoPoint(52.2, 13.3).distance_km(hive.address.point), hive.id
    percent = hive.occupancy.percent if hive.occupancy else None
    if not hive.open_now:
        return True, True, 0.0, hive.id
    return False, percent is None, percent or 0.0, hive.id


async def test_what_is_found_in_memory_is_told_as_it_is_now(furnished: Database) -> None:
    async with DatabasePool(furnished.url, 2, wait=60) as pool:
        old = list((await HiveService(pool, lambda: NOON).snapshot()).summaries)
        hives = HiveService(pool, lambda: NOON, lambda: old)
        wanted = HiveQuery(q="amber", near=GeoPoint(52.2, 13.3))
        first, second, *_ = (await hives.search(wanted)).items
        furnished.execute("UPDATE hive SET public = false WHERE id = %s", (first.id,))
        furnished.execute(
            "INSERT INTO hive_status VALUES (%s, 9, 9, 90, 'full', 'steady', 'good', %s, 2) "
            "ON CONFLICT (hive_id) DO UPDATE SET percent = 90, version = 2",
            (second.id, NOON),
        )
        try:
            found = {hive.id: hive for hive in (await hives.search(wanted)).items}
        finally:
            furnished.execute("UPDATE hive SET public = true WHERE id = %s", (first.id,))
    assert first.id not in found
    occupancy = found[second.id].occupancy
    assert occupancy is not None
    assert occupancy.percent == 90
    assert found[second.id].distance_km == second.distance_km


async def test_before_anything_is_in_memory_the_database_is_searched(furnished: Database) -> None:
    def nothing() -> list[HiveSummary]:
        raise NotReady("no data yet")

    async with DatabasePool(furnished.url, 2, wait=60) as pool:
        found = await HiveService(pool, lambda: NOON, nothing).search(HiveQuery(q="kafe zoe"))
    assert {hive.name for hive in found.items} == {"Café Zoë"}


def _all(
    ask: Callable[[HiveQuery], CursorPage[HiveSummary]], query: HiveQuery
) -> list[HiveSummary]:
    """All pages, one after the other."""
    page = ask(query)
    found = list(page.items)
    while page.next is not None:
        assert len(page.items) == query.limit
        page = ask(query.model_copy(update={"cursor": page.next}))
        found += page.items
    return found


@pytest.mark.parametrize(
    ("text", "search", "found"),
    [
        ("Café Zoë Café Tokyo", "cafe tokyo", True),
        ("7 Bees", "7 bees", True),
        ("Thyme Café", "cafr", True),  # a wrong letter
        ("Thyme Café", "kafe", True),  # the first one, too
        ("Thyme Café", "ccafe", True),  # one too many
        ("Olive Library", "libary", True),  # one missing
        ("Olive Library", "lirbary", True),  # two exchanged
        ("Olive Library", "lirbery", False),
        ("Olive", "oxe", False),  # short words are taken literally
        ("10115", "10116", False),  # so are numbers
        ("STRASSE", "strasse", True),
    ],
)
def test_a_word_may_have_one_wrong_letter(text: str, search: str, found: bool) -> None:
    assert all(each.search(plain_text(text)) for each in word_patterns(search)) is found
