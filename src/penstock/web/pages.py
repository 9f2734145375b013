"""What the shell needs to know of a page: where it is, who may see it, and how it is drawn.

An application's pages are a `Section`, built by a function of the application's own folder
(`web/jobs`, `web/hives`) and handed to `create_app`. The shell draws what is around a page, asks
who the visitor is, and opens what a section's pages need before the first of them is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.responses import Response


#: Who looks after the system: a role of people, where there is a gate.
OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class Person:
    id: str
    name: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Visit:
    """A page that is asked for: by whom, and what its address has in it."""

    person: Person
    parameters: Mapping[str, str]  #: of the path: `/jobs/{id}`
    query: Mapping[str, str]
    #: Give the page the name of what it is about, in place of its own.
    entitle: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    title: str
    icon: str  #: a name of Google's Material Icons
    draw: Callable[[Visit], Awaitable[None]]  #: NiceGUI elements, into the frame
    about: str = ""  #: a sentence for the first page
    role: str | None = None  #: who has it may see the page; none: whoever is let in
    listed: bool = True  #: in the menu; a page of one job is not


@dataclass(frozen=True, slots=True)
class Download:
    """A file beside the pages, behind the same gate."""

    path: str
    answer: Callable[[Visit], Awaitable[Response]]
    role: str | None = None


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


@dataclass(frozen=True, slots=True)
class Section:
    """The pages of one application."""

    name: str
    pages: tuple[Page, ...]
    downloads: tuple[Download, ...] = ()
    #: Open while the server runs: connections, tasks that listen.
    opened: Callable[[], AbstractAsyncContextManager[None]] = nothing


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the other parts are, for whoever builds a section."""

    data: Path
    broker: str  #: URL
    database: str | None = None  #: URL; none: the embedded one under `data`
