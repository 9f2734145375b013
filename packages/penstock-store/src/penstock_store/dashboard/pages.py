"""What applications provide for the dashboards: sections of pages, downloads, an authenticator.

An application builds a `DashboardSection` (entry points `penstock.dashboards`). The shell draws the
frame around a page, authenticates the user and opens the resources of a section.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from starlette.responses import Response


#: The role of those who run the system.
OPERATOR_ROLE: Final = "operator"


@dataclass(frozen=True, slots=True)
class DashboardUser:
    id: str
    name: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PageRequest:
    user: DashboardUser
    parameters: Mapping[str, str]  #: of the path, as in `/jobs/{id}`
    query: Mapping[str, str]
    #: Replaces the title of the page.
    set_title: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class DashboardPage:
    path: str
    title: str
    icon: str  #: a name of Material Icons
    draw: Callable[[PageRequest], Awaitable[None]]  #: draws NiceGUI elements
    about: str = ""  #: a sentence for the home page
    role: str | None = None  #: required role; None: all users
    in_menu: bool = True


@dataclass(frozen=True, slots=True)
class DashboardDownload:
    path: str
    answer: Callable[[PageRequest], Awaitable[Response]]
    role: str | None = None


@asynccontextmanager
async def no_lifespan() -> AsyncIterator[None]:
    yield


@dataclass(frozen=True, slots=True)
class DashboardSection:
    """The pages of one application."""

    name: str
    pages: tuple[DashboardPage, ...]
    downloads: tuple[DashboardDownload, ...] = ()
    static: Path | None = None  #: a directory, served as `/static/<name in lower case>/`
    #: Resources that are open while the server runs.
    opened: Callable[[], AbstractAsyncContextManager[None]] = no_lifespan


@dataclass(frozen=True, slots=True)
class SectionContext:
    """Addresses of the other parts, for the creation of a section."""

    data: Path
    broker: str  #: URL
    database: str | None = None  #: URL; None: the embedded one under `data`
    management: str | None = None  #: URL of the broker's management API, with a password
    mqtt: str | None = None  #: URL at which devices connect to the broker


class Authenticator(Protocol):
    """Signs users in; implemented by an application.

    Without one everyone is `ANONYMOUS` with every role, which is right for loopback. It is called
    for each page and download, and once a minute while a page is open, so a session that was ended
    elsewhere ends here, too.
    """

    async def sign_in(self, name: str, password: str, address: str) -> str | None:
        """The key of a new session, if name and password are right."""

    async def find_user(self, key: str) -> DashboardUser | None:
        """The user of a session; None if it has ended."""

    async def sign_out(self, key: str) -> None: ...


@runtime_checkable
class FirstRunAuthenticator(Protocol):
    """An authenticator that creates the first administrator of an empty installation."""

    first_page: str  #: opened after that

    async def needs_administrator(self) -> bool: ...

    async def create_administrator(self, name: str, password: str) -> str:
        """The key of a new session; raises if there is an administrator."""


@runtime_checkable
class ProviderAuthenticator(Protocol):
    """An authenticator that also accepts accounts of other services, its providers.

    The browser goes to the page of the provider and comes back with a query. What `begin` returns
    is kept for this browser until then."""

    def providers(self) -> Mapping[str, str]:
        """Names for people, by id."""

    async def begin(self, provider: str, back: str) -> tuple[str, str]:
        """The URL to open, and the state of the sign-in. `back` is the URL to come back to."""

    async def finish(self, provider: str, state: str, url: str) -> str | None:
        """The key of a new session, for the URL with which the browser came back; None if the
        provider refuses it."""


#: Time limit of drawing a page, with its database queries.
DRAW_SECONDS: Final = 60.0
#: The user where there is no authenticator.
ANONYMOUS: Final = DashboardUser("", "anyone")


def is_allowed(user: DashboardUser, role: str | None, gate: Authenticator | None) -> bool:
    return gate is None or role is None or role in user.roles


def safe_redirect_path(text: str) -> str:
    """The target after a sign-in: a local path, never another site."""
    local = text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text
    return text if local else "/"
