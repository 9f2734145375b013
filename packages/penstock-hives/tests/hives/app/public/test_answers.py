"""What the public is answered: from the view, with live figures, and never from the database."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock_hives.live.change_feed import ChangeFeed, EncodedOccupancy
from penstock_hives.public.reader import PublicReader, public_endpoint
from penstock_hives.public.view import PublicView
from penstock_hives.server.asgi import Receive, Scope, Send, send_response
from tests.hives.app.public.snapshots import NOON, document, edition
from tests.hives.app.serving import PATIENCE, served

TEAPOT = 418


async def others(scope: Scope, receive: Receive, send: Send) -> None:
    """Where the database would be asked."""
    await send_response(send, TEAPOT, [(b"content-length", b"0")])


@asynccontextmanager
async def site(view: PublicView) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        served(public_endpoint(PublicReader(view), others)) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        yield client


def view_of(hives: int = 3, **given: Any) -> PublicView:
    view = PublicView(clock=lambda: NOON, **given)
    view.replace_snapshot(edition(hives))
    return view


@pytest.mark.parametrize(
    "path",
    [
        "/v1/hives",
        "/v1/hives?name=amber&type=cafe&limit=1",
        "/v1/hives?near=51.5,-0.12&within_km=5&sort=distance",
        "/v1/hives/1",
        "/v1/hives/1/occupancy",
        "/v1/hives/1/typical-week",
        "/v1/hives/1/forecast",
        "/v1/hives/1/images",
        "/v1/hives/1/deals",
        "/v1/hive-types",
        "/v1/deals",
        "/v1/deals/daily",
        "/v1/deals/10",
        "/v1/plans",
        "/v1/map?bbox=-1,51,1,52",
        "/v1/hives/1/navigation?from=51.5,0",
    ],
)
async def test_a_read_without_a_token_is_answered_and_says_of_when_it_is(path: str) -> None:
    async with site(view_of()) as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-as-of"] == "2026-11-15T12:00:00Z"
    assert answer.json() is not None


async def test_an_answer_is_made_once_for_all_who_ask() -> None:
    answers = PublicReader(view_of())

    first, second = [answers.find("/v1/hives", "limit=2") for _ in range(2)]

    assert first is not None
    assert second is not None
    assert first.body is second.body


async def test_without_an_edition_the_answer_is_to_come_again() -> None:
    async with site(PublicView()) as client:
        for path in ("/v1/hives", "/v1/hives/1", "/v1/deals"):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0


async def test_what_is_not_there_is_not_looked_for_elsewhere() -> None:
    async with site(view_of()) as client:
        answer = await client.get("/v1/hives/99")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert (await client.get("/v1/hives/3/occupancy")).status_code == 503  # not counted yet


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=x", "near=here", "sort=best", "within_km=2", "open_now=perhaps", "cursor=?"],
)
async def test_a_question_that_cannot_be_meant_is_refused(query: str) -> None:
    async with site(view_of()) as client:
        assert (await client.get(f"/v1/hives?{query}")).status_code == 422


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_who_shows_who_they_are_is_for_others_to_answer(header: str) -> None:
    async with site(view_of()) as client:
        assert (await client.get("/v1/hives/1", headers={header: "x"})).status_code == TEAPOT


async def test_what_is_no_read_of_ours_is_for_others_to_answer() -> None:
    async with site(view_of()) as client:
        assert (await client.post("/v1/hives")).status_code == TEAPOT
        assert (await client.get("/v1/me")).status_code == TEAPOT
        assert (await client.get("/v1/hives/1/sensors")).status_code == TEAPOT


async def test_a_figure_that_is_heard_is_in_the_next_answer() -> None:
    view = view_of()
    async with site(view) as client:
        before = (await client.get("/v1/hives/1")).json()["occupancy"]
        view.apply_live(document(1, version=2, people=44))
        after = (await client.get("/v1/hives/1")).json()["occupancy"]
        alone = (await client.get("/v1/hives/1/occupancy")).json()
    assert (before["occupancy"], after["occupancy"]) == (20, 44)
    assert after == alone
    assert after["usual"]["relation"] == "busier"  # twenty is usual on a Sunday at noon


async def test_a_stale_hive_has_no_level_and_is_compared_with_nothing() -> None:
    view = view_of()
    view.apply_live(document(1, version=2, quality="stale", level=None))
    async with site(view) as client:
        told = (await client.get("/v1/hives/1/occupancy")).json()
    assert (told["quality"], told["level"], told["usual"]) == ("stale", None, None)


async def test_an_older_figure_changes_nothing() -> None:
    told: list[EncodedOccupancy] = []
    view = view_of(on_change=told.append)
    view.apply_live(document(1, version=5))
    view.apply_live(document(1, version=4, people=1))
    view.replace_snapshot(edition(version=3))
    async with site(view) as client:
        assert (await client.get("/v1/hives/1/occupancy")).json()["version"] == 5
    assert [figure.version for figure in told if figure.hive == 1][-1] == 5


async def test_a_hive_that_is_not_public_is_never_told_of() -> None:
    told: list[EncodedOccupancy] = []
    view = view_of(on_change=told.append)
    told.clear()
    view.apply_live(document(77, version=1))
    assert not told


async def test_a_hive_that_is_no_longer_public_is_told_of_no_more() -> None:
    feed = ChangeFeed()
    view = PublicView(feed.publish, feed.remove, clock=lambda: NOON)
    view.replace_snapshot(edition(hives=4))
    assert set(feed.latest) == {1, 2, 3}
    view.replace_snapshot(edition(hives=2))
    assert set(feed.latest) == {1, 2}
    view.apply_live(document(3, version=9))
    assert 3 not in feed.latest


async def test_a_list_is_sorted_searched_and_paged() -> None:
    async with site(view_of(hives=5)) as client:
        near = (await client.get("/v1/hives?near=51.504,-0.12&sort=distance&limit=2")).json()
        rest = await client.get(f"/v1/hives?near=51.504,-0.12&sort=distance&cursor={near['next']}")
        bars = (await client.get("/v1/hives?type=bar")).json()
    assert [hive["id"] for hive in near["items"]] == [4, 3]
    assert sorted(hive["id"] for hive in rest.json()["items"]) == [1, 2, 5]
    assert {hive["id"] for hive in bars["items"]} == {2, 4}


async def test_what_has_not_changed_is_not_sent_again() -> None:
    async with site(view_of()) as client:
        tag = (await client.get("/v1/hives/1")).headers["etag"]
        same = await client.get("/v1/hives/1", headers={"if-none-match": tag})
    assert (same.status_code, same.content) == (304, b"")


async def test_large_answers_are_compressed_for_who_can_read_that() -> None:
    async with site(view_of(hives=30)) as client:
        async with client.stream("GET", "/v1/hives", headers={"accept-encoding": "gzip"}) as zipped:
            raw = b"".join([part async for part in zipped.aiter_raw()])
        plain = await client.get("/v1/hives", headers={"accept-encoding": "identity"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert json.loads(gzip.decompress(raw)) == plain.json()


async def test_the_head_of_an_answer_can_be_had_alone() -> None:
    async with site(view_of()) as client:
        head = await client.head("/v1/hives/1")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
