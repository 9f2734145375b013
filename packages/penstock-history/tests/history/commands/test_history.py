"""`penstock history` prints what the archive has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.content import Publication
from penstock_history.archive import PublicationArchive
from penstock_history.publication import ArchivedPublication
from penstock_store import Database
from tests.databases import copy_of


@pytest.fixture
def url(embedded_template: str) -> Iterator[str]:
    with copy_of(embedded_template) as url:
        with Database(url) as database:
            batch = [
                ArchivedPublication(
                    number,
                    f"B1-M{number}",
                    datetime(2026, 1, 1 + number, tzinfo=UTC),
                    Publication("stock", {"symbol": "IBM", "price": 10 * number}),
                    b"",
                )
                for number in range(5)
            ]
            PublicationArchive(database).insert("history", batch, 5)
        yield url


def lines(url: str, *arguments: str) -> list[str]:
    result = CliRunner().invoke(app, ["history", "--database", url, *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_what_satisfies_a_subscription_is_printed_in_order(url: str) -> None:
    found = lines(url, "[class,eq,stock],[price,>,15]", "--before", "2026-01-05")

    assert [line.split()[0] for line in found] == ["2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"]
    assert found[0] == '2026-01-03T00:00:00Z [class,stock],[symbol,"IBM"],[price,20]'


def test_a_limit_leaves_the_rest_out_and_says_so(url: str) -> None:
    assert len(lines(url, "[class,eq,stock]", "--limit", "2")) == 2


def test_a_mistake_in_the_language_is_pointed_at(url: str) -> None:
    result = CliRunner().invoke(app, ["history", "--database", url, "[class,eq,stock],[price,<]"])

    assert result.exit_code != 0
    assert "position" in result.output or "expected" in result.output
