"""Who may come in. The shell asks; whoever knows the people answers.

Without a gate everyone is `anyone`, with every role: right for a machine of one's own, where the
dashboards listen on loopback. The gate is asked again for each page and each download, and once a
minute while a page is open: a session that was ended elsewhere, by a new password say, ends here.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.web.pages import Person


class Gate(Protocol):
    async def admit(self, name: str, password: str) -> str | None:
        """The key of a new session, if that is how they sign in."""

    async def recall(self, key: str) -> Person | None:
        """Whose session it is, as they are now; None when it has ended, or they may not come in."""

    async def dismiss(self, key: str) -> None:
        """End the session."""


#: Of whom nothing is known because nobody asked.
ANYONE: Final = Person("", "anyone")


def allowed(person: Person, role: str | None, gate: Gate | None) -> bool:
    return gate is None or role is None or role in person.roles


def local_path(text: str) -> str:
    """Where to go after signing in: a page of ours, whatever the address says."""
    ours = text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text
    return text if ours else "/"
