"""What is kept can be asked for: by every operator, exactly, and once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.content import Publication, Subscription, parse_subscription, satisfies
from penstock_history.archive import PublicationArchive
from penstock_history.publication import ArchivedPublication
from penstock_history.query import HistoryQuery
from penstock_store import Database
from tests.content.strategies import publications, subscriptions

DAWN = datetime(2026, 1, 1, tzinfo=UTC)


def archived(publications: Sequence[Publication], first: int = 0) -> list[ArchivedPublication]:
    return [
        ArchivedPublication(
            offset, f"B1-M{offset}", DAWN + timedelta(seconds=offset), one, b"payload %d" % offset
        )
        for offset, one in enumerate(publications, first)
    ]


def stocks(*prices: float) -> list[Publication]:
    return [Publication("stock", {"symbol": "IBM", "price": price}) for price in prices]


def asked(
    archive: PublicationArchive,
    text: str,
    after: datetime | None = None,
    before: datetime | None = None,
) -> list[int]:
    query = HistoryQuery(parse_subscription(text), after, before)
    return [found.offset for found in archive.query(query)]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(publications(), min_size=1, max_size=8),
    st.lists(subscriptions(), min_size=1, max_size=8),
)
def test_the_past_is_asked_as_the_present(
    database: Database, said: list[Publication], wanted: list[Subscription]
) -> None:
    archive = PublicationArchive(database)
    database.execute("TRUNCATE publication CASCADE")
    everything = archived(said)
    assert archive.insert("history", everything, len(said)) == []

    for subscription in wanted:
        found = list(archive.query(HistoryQuery(subscription)))

        assert found == [one for one in everything if satisfies(one.publication, subscription)]


def test_what_comes_again_is_there_once(archive: PublicationArchive) -> None:
    everything = archived(stocks(10, 20, 30))
    archive.insert("history", everything[:2], 2)
    archive.insert("history", everything, 3)
    archive.insert("history", everything[:1], 1)

    assert asked(archive, "[class,eq,stock]") == [0, 1, 2]
    assert archive.next_offset("history") == 3
    assert archive.next_offset("another") == 0


def test_times_are_bounds_that_are_left_out(archive: PublicationArchive) -> None:
    archive.insert("history", archived(stocks(1, 2, 3, 4)), 4)
    second = timedelta(seconds=1)

    assert asked(archive, "[class,eq,stock]", after=DAWN) == [1, 2, 3]
    assert asked(archive, "[class,eq,stock]", before=DAWN + 3 * second) == [0, 1, 2]
    assert asked(archive, "[class,eq,stock]", after=DAWN, before=DAWN + 2 * second) == [1]


def test_nobody_asks_in_sql(archive: PublicationArchive) -> None:
    nasty = "'; DROP TABLE publication; --"
    archive.insert("history", archived([Publication("stock", {"symbol": nasty})]), 1)

    assert asked(archive, "[class,eq,stock],[symbol,isPresent,'']") == [0]
    query = parse_subscription('[class,eq,stock],[symbol,eq,"\'; DROP TABLE publication; --"]')
    assert [one.offset for one in archive.query(HistoryQuery(query))] == [0]


def test_an_attribute_nobody_has_is_no_answer(archive: PublicationArchive) -> None:
    archive.insert("history", archived(stocks(1)), 1)

    assert asked(archive, "[class,eq,stock],[volume,>,0]") == []
    assert asked(archive, "[class,eq,weather]") == []


def test_long_texts_are_found_by_all_of_them(archive: PublicationArchive) -> None:
    long = "x" * 5000
    said = [Publication("note", {"text": long + end}) for end in ("a", "b")]
    archive.insert("history", archived(said), 2)

    assert asked(archive, f"[class,eq,note],[text,eq,'{long}b']") == [1]
    assert asked(archive, f"[class,eq,note],[text,str-prefix,'{long}']") == [0, 1]


def test_what_postgresql_cannot_name_is_given_back(archive: PublicationArchive) -> None:
    odd = [Publication("a\0b", {}), Publication("fine", {"x\0": 1}), *stocks(1)]

    refused = archive.insert("history", archived(odd), 3)

    assert [one.offset for one in refused] == [0, 1]
    assert asked(archive, "[class,eq,stock]") == [2]


def test_what_is_old_is_forgotten(archive: PublicationArchive) -> None:
    archive.insert("history", archived(stocks(1, 2)), 2)

    assert archive.delete_older(timedelta(days=365 * 100)) == 0
    assert archive.delete_older(timedelta()) == 2
    assert archive.time_span()[0] == 0


def test_requests_and_answered_questions_are_remembered(archive: PublicationArchive) -> None:
    assert archive.add_request("[class,eq,stock]", "stock")
    assert not archive.add_request("[class,eq,stock]", "stock")
    assert archive.requests() == ["[class,eq,stock]"]
    assert archive.remove_request("[class,eq,stock]")
    assert archive.requests() == []

    assert not archive.is_answered("B1-M7")
    archive.mark_answered("B1-M7")
    assert archive.is_answered("B1-M7")
    archive.unmark_answered("B1-M7")
    assert not archive.is_answered("B1-M7")
