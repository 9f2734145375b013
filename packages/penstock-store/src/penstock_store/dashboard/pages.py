"""What the shell needs to know of a page: where it is, who may see it, and how it is drawn.

An application's pages are a `DashboardSection`, built by a function of the application's own folder
(`web/jobs`, `web/hives`) and handed to `create_app`. The shell draws what is around a page, asks
who the visitor is, and opens what a section's pages need before the first of them is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from starlette.responses import Response


#: Who looks after the system: a role of people, where there is a gate.
OPERATOR_ROLE: Final = "operator"


@dataclass(frozen=True, slots=True)
class DashboardUser:
    id: str
    name: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page that is asked for: by whom, and what its address has in it."""

    person: DashboardUser
    parameters: Mapping[str, str]  #: of the path: `/jobs/{id}`
    query: Mapping[str, str]
    #: Give the page the name of what it is about, in place of its own.
    entitle: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class DashboardPage:
    path: str
    title: str
    icon: str  #: a name of Google's Material Icons
    draw: Callable[[PageRequest], Awaitable[None]]  #: NiceGUI elements, into the frame
    about: str = ""  #: a sentence for the first page
    role: str | None = None  #: who has it may see the page; none: whoever is let in
    listed: bool = True  #: in the menu; a page of one job is not


@dataclass(frozen=True, slots=True)
class DashboardDownload:
    """A file beside the pages, behind the same gate."""

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
    static: Path | None = (
        None  #: a directory served under `/static/<name>/`, the name in lower case
    )
    #: Open while the server runs: connections, tasks that listen.
    opened: Callable[[], AbstractAsyncContextManager[None]] = no_lifespan


@dataclass(frozen=True, slots=True)
class SectionContext:
    """Where the other parts are, for whoever builds a section."""

    data: Path
    broker: str  #: URL
    database: str | None = None  #: URL; none: the embedded one under `data`


# Who may come in. The shell asks; whoever knows the people answers.
#
# Without a gate everyone is `anyone`, with every role: right for a machine of one's own, where the
# dashboards listen on loopback. The gate is asked again for each page and each download, and once a
# minute while a page is open: a session that was ended elsewhere, by a new password say, ends here.


class Authenticator(Protocol):
    async def admit(self, name: str, password: str) -> str | None:
        """The key of a new session, if that is how they sign in."""

    async def recall(self, key: str) -> DashboardUser | None:
        """Whose session it is, as they are now; None when it has ended, or they may not come in."""

    async def dismiss(self, key: str) -> None:
        """End the session."""


#: Of whom nothing is known because nobody asked.
ANONYMOUS: Final = DashboardUser("", "anyone")


def is_allowed(person: DashboardUser, role: str | None, gate: Authenticator | None) -> bool:
    return gate is None or role is None or role in person.roles


def safe_redirect_path(text: str) -> str:
    """Where to go after signing in: a page of ours, whatever the address says."""
    ours = text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text
    return text if ours else "/"
