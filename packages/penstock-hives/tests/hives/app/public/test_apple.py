"""Apple sends people back with a form; the page reads its fields from the query."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from penstock_hives.public.page import cached_files, read_contents, static_files
from penstock_hives.server.asgi import Location, LocationRouter

FORM = {
    "code": "c0de&x=1",
    "state": "st\r\nLocation: https://evil.example/",
    "user": '{"name": {"firstName": "Ada"}}',
    "next": "https://evil.example/",
}


def client(*, signs_in: bool = True) -> httpx.AsyncClient:
    page = Location("page", "/", static_files(cached_files(read_contents()), signs_in=signs_in))
    app = LocationRouter([page], {"/": "/index.html"})
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://hives")


async def test_the_form_of_a_sign_in_becomes_the_query_of_the_page() -> None:
    async with client() as apple:
        answer = await apple.post("/", data=FORM)
    assert answer.status_code == 303
    assert answer.headers["cache-control"] == "no-store"
    where = urlsplit(answer.headers["location"])
    assert (where.scheme, where.netloc, where.path) == ("", "", "/")
    given = {name: [FORM[name]] for name in ("code", "state", "user")}
    assert parse_qs(where.query) == given


async def test_a_cancelled_sign_in_comes_back_as_one() -> None:
    async with client() as apple:
        answer = await apple.post("/", data={"state": "s", "error": "user_cancelled_authorize"})
    assert answer.headers["location"] == "/?state=s&error=user_cancelled_authorize"


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 422), (b"code=1", 422), (b"state=1", 422), (b"\xff\x00=&;", 422), (b"a" * 17_000, 413)],
)
async def test_other_forms_are_refused(body: bytes, status: int) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    async with client() as anybody:
        assert (await anybody.post("/", content=body, headers=headers)).status_code == status


async def test_without_firebase_no_form_is_accepted() -> None:
    async with client(signs_in=False) as apple:
        assert (await apple.post("/", data=FORM)).status_code == 405
        assert (await apple.post("/style.css", data=FORM)).status_code == 405
