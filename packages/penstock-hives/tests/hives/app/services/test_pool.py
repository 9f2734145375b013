"""Connections of the application: named errors, servers that come back, bounded waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from penstock_hives.database import DatabasePool
from penstock_hives.errors import InvalidRequest, RequestConflict
from penstock_store import Database, StoreUnavailable


async def test_connections_that_were_ended_are_replaced_unnoticed(database: Database) -> None:
    async with DatabasePool(database.url, 2, wait=60) as pool:
        await asyncio.gather(*(pool.rows("SELECT 1") for _ in range(4)))
        database.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

        assert await pool.row("SELECT 2 AS n") == {"n": 2}


@pytest.mark.parametrize(
    ("statement", "value", "expected"),
    [
        ("INSERT INTO hive_type (code, name) VALUES (%s, 'x')", "twice", RequestConflict),
        ("INSERT INTO hive_type (code, name) VALUES (%s, 'x')", "Not a word", InvalidRequest),
        ("INSERT INTO account (name) VALUES (%s)", None, InvalidRequest),
        ("INSERT INTO account (name) VALUES (%s)", "nul \0", InvalidRequest),
        (
            "INSERT INTO account_member (account_id, user_id) VALUES (%s, 1)",
            999_999,
            RequestConflict,
        ),
        ("SELECT %s::bigint", 1 << 70, InvalidRequest),
    ],
)
async def test_what_the_database_refuses_has_a_name(
    database: Database, statement: str, value: object, expected: type[Exception]
) -> None:
    database.execute(
        "INSERT INTO hive_type (code, name) VALUES ('twice', 'x') ON CONFLICT DO NOTHING"
    )
    async with DatabasePool(database.url, 1, wait=60) as pool:
        with pytest.raises(expected):
            await pool.execute(statement, (value,))

        assert await pool.row("SELECT 1 AS n") == {"n": 1}  # the connection is none the worse


async def test_a_mistake_of_ours_keeps_its_own_name(database: Database) -> None:
    async with DatabasePool(database.url, 1, wait=60) as pool:
        with pytest.raises(psycopg.errors.UndefinedColumn):
            await pool.execute("SELECT no_such_column FROM hive")


async def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    async def undone() -> None:
        async with pool.transaction() as connection:
            await connection.execute("INSERT INTO account (name) VALUES ('undone')")
            raise ZeroDivisionError

    async with DatabasePool(database.url, 1, wait=60) as pool:
        with pytest.raises(ZeroDivisionError):
            await undone()

        assert await pool.rows("SELECT FROM account WHERE name = 'undone'") == []


async def test_what_is_joined_is_one_transaction_and_what_is_refused_in_it_undoes_itself_only(
    database: Database,
) -> None:
    async with DatabasePool(database.url, 1, wait=60) as pool:  # one: any other would wait for ever
        async with pool.join_transaction():
            await pool.execute("INSERT INTO account (name) VALUES ('joined')")
            with pytest.raises(InvalidRequest):
                await pool.execute("INSERT INTO account (name) VALUES (NULL)")
            async with pool.transaction() as connection:
                await connection.execute("INSERT INTO account (name) VALUES ('joined')")
            assert database.rows("SELECT FROM account WHERE name = 'joined'") == []

        assert len(await pool.rows("SELECT FROM account WHERE name = 'joined'")) == 2


async def test_a_task_that_is_started_within_has_a_connection_of_its_own(
    database: Database,
) -> None:
    async with DatabasePool(database.url, 2, wait=60) as pool, pool.join_transaction():
        await pool.execute("INSERT INTO account (name) VALUES ('seen within only')")

        seen = pool.rows("SELECT FROM account WHERE name = 'seen within only'")

        assert await asyncio.create_task(seen) == []


async def test_deeds_are_done_when_what_they_tell_of_is_committed_or_not_at_all(
    database: Database,
) -> None:
    told: list[str] = []

    async def tell() -> None:
        found = database.rows("SELECT name FROM account WHERE name LIKE 'told%'")
        told.extend(row["name"] for row in found)

    async def joined(name: str) -> None:
        async with pool.join_transaction():
            await pool.execute("INSERT INTO account (name) VALUES (%s)", (name,))
            await pool.after_commit(tell)
            assert told == []
            if name == "told never":
                raise ZeroDivisionError

    async with DatabasePool(database.url, 1, wait=60) as pool:
        with pytest.raises(ZeroDivisionError):
            await joined("told never")
        assert told == []
        await joined("told")
        assert told == ["told"]


async def test_of_several_hosts_one_that_is_away_gives_way_to_the_next(
    database: Database, tmp_path: Path
) -> None:
    there = conninfo_to_dict(database.url)
    hosts = f"{tmp_path},{there['host']}"  # nobody listens in an empty folder
    ports = f"{there['port']},{there['port']}"
    url = f"postgresql://{there['user']}@/{there['dbname']}?host={hosts}&port={ports}"

    async with DatabasePool(url, 1, wait=60) as pool:
        assert await pool.row("SELECT 1 AS n") == {"n": 1}


async def test_who_waits_too_long_for_a_connection_is_told_to_come_again(
    database: Database,
) -> None:
    async with DatabasePool(database.url, 1, wait=0.1) as pool:
        while True:  # until there is a connection at all
            try:
                await pool.rows("SELECT 1")
                break
            except StoreUnavailable:
                continue
        async with pool.reading():
            with pytest.raises(StoreUnavailable):
                await pool.rows("SELECT 1")
