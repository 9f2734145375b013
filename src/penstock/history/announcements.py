"""What the historian advertises: the attributes that its answers can have, as they become known."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from penstock.client.padres import Client
from penstock.content import Publication
from penstock.content.announcing import Announcing
from penstock.history.questions import sample_of


class Announcements:
    """Decides at once and tells the broker when `tell` is awaited, in the same order."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = count(1)
        self._untold: list[tuple[str, str]] = []  # what, and its text; no text withdraws it
        self._told: dict[str, str] = {}  # the broker's id of each
        self._announcing = Announcing(self._announce, self._withdraw)

    def saw(self, publications: Iterable[Publication]) -> None:
        for publication in publications:
            self._announcing.saw(publication)

    def know(self, attributes: Iterable[tuple[str, str, bool]]) -> None:
        """What publications of a class came with before."""
        for class_name, attribute, is_text in attributes:
            value = "" if is_text else 0
            self._announcing.saw(sample_of(Publication(class_name, {attribute: value})))

    async def tell(self) -> None:
        while self._untold:
            name, text = self._untold.pop(0)
            if text:
                self._told[name] = await self._client.advertise(text)
            elif name in self._told:
                await self._client.withdraw(self._told.pop(name))

    def _announce(self, text: str) -> str:
        name = str(next(self._numbers))
        self._untold.append((name, text))
        return name

    def _withdraw(self, name: str) -> None:
        self._untold.append((name, ""))
