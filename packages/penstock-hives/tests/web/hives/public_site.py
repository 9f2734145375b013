"""The public site as people have it, for tests in a browser: a broker, a database, one server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import default
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from playwright.sync_api import Browser, Page, expect

from penstock.client.blocking_client import connect
from penstock_hives.database import DatabasePool
from penstock_hives.occupancy.publisher import EXCHANGE
from penstock_hives.push.sender import PushSender
from penstock_hives.push.settings import PushSettings, open_channels
from penstock_store import Database
from tests.hives.app.public.snapshots import document
from tests.web.browsing import PATIENCE
from tests.web.hives.screens import looking

HIVES: Final = 8
PASSWORD: Final = "nine green bottles"
_people = count(1)
Found = TypeVar("Found")


@dataclass(frozen=True)
class Site:
    url: str
    broker: str
    database: str
    folder: Path
    versions: Iterator[int]

    def tell(self, hive: int, people: int, **given: Any) -> None:
        """As the pipeline would."""
        figure = document(hive, next(self.versions), people, **given)
        with connect(self.broker) as fabric:
            fabric.publish(f"occupancy.{hive}", figure, exchange=EXCHANGE)

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with Database(self.database) as database, database.transaction() as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def call(self, verb: str, path: str, token: str | None = None, **given: Any) -> Any:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = httpx.request(verb, f"{self.url}/v1{path}", headers=headers, timeout=60, **given)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def sign_up(self) -> tuple[str, Any]:
        """Somebody with an account: their address and a session."""
        login = f"person{next(_people)}@bees.example"
        given = {"login": login, "password": PASSWORD}
        return login, self.call("POST", "/identity/sign-up", json=given)

    def person(self) -> tuple[str, str]:
        """Their address and a token."""
        login, session = self.sign_up()
        return login, session["id_token"]

    def letter(self, to: str) -> str:
        """The text of the last mail to somebody."""

        def written() -> str | None:
            folder = self.folder / "hives" / "identity" / "letters"
            files = sorted(folder.glob("*.eml"), key=lambda each: each.stat().st_mtime)
            mails = [message_from_bytes(each.read_bytes(), policy=default) for each in files]
            found = [str(each.get_content()) for each in mails if each["To"] == to]
            return found[-1] if found else None

        return until(written)

    def send_pushes(self) -> int:
        """As `penstock hives alerts` does; returns how many were sent."""

        async def send() -> int:
            settings = PushSettings(vapid_key=self.folder / "hives" / "vapid.pem", local=True)
            async with DatabasePool(self.database, 1, 60, 60) as pool:
                sender = PushSender(pool, open_channels(settings, production=False))
                sent = await sender.send_due()
                await sender.close()
                return sent

        return in_another_thread(send())


def in_another_thread(work: Coroutine[Any, Any, int]) -> int:
    """Playwright has the loop of this thread."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return found[0]


def until(look: Callable[[], Found | None], seconds: float = PATIENCE / 1000) -> Found:
    """What it finds, as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def listening(url: str) -> None:
    """Until it has something to show, and hears what the broker tells."""

    def ready() -> bool | None:
        health = httpx.get(f"{url}/health", timeout=60).json()
        return True if health["edition"] and health["live"] else None

    until(ready)


def sign_in(page: Page, login: str, password: str = PASSWORD) -> None:
    page.goto("/#/sign-in")
    page.get_by_label("E-mail address").fill(login)
    page.get_by_label("Password").fill(password)
    page.get_by_label("Password").press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


@contextmanager
def signed_in(browser: Browser, site: Site, **given: Any) -> Iterator[tuple[Page, str, str]]:
    """A page, and the address and token of who is signed in."""
    login, session = site.sign_up()
    held = {key: session[key] for key in ("id_token", "refresh_token", "uid")}
    expires = (time.time() + session["expires_in"]) * 1000
    value = json.dumps({**held, "expires_at": expires})
    storage: Any = {"origin": site.url, "localStorage": [{"name": "hives.session", "value": value}]}
    with looking(browser, site.url, known={"cookies": [], "origins": [storage]}, **given) as page:
        page.goto("/#/account")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        yield page, login, session["id_token"]


def heading(page: Page) -> Any:
    return page.get_by_role("heading", level=1)
