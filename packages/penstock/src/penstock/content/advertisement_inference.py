"""Advertisements for those who do not advertise: from what they publish, as it is seen.

For each class there is an advertisement that names every attribute that came and says of which type
it was; it is made anew when another comes. A class whose attributes come as text once and as
number another time has several. There is an end to it: those who invent names without end are not
advertised any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.content.formatter import format_message
from penstock.content.messages import Advertisement, Operator, Predicate, Publication, Variable

#: The most advertisements of one publisher, and attributes in one of them.
MAX_CLASSES: Final = 1024
MAX_ATTRIBUTES: Final = 128


class _InferredAdvertisement:
    __slots__ = ("id", "texts")

    def __init__(self, texts: dict[str, bool]) -> None:
        self.texts = texts  #: for each attribute, whether it is a text
        self.id = ""


class AdvertisementInference:
    """`announce` is given the text of an advertisement and returns its id, to `withdraw` it by."""

    def __init__(self, announce: Callable[[str], str], withdraw: Callable[[str], None]) -> None:
        self._announce = announce
        self._withdraw = withdraw
        self._by_class: dict[str, list[_InferredAdvertisement]] = {}
        self._count = 0

    def saw(self, publication: Publication) -> None:
        texts = {
            name: isinstance(value, str)
            for name, value in publication.attributes.items()
            if not isinstance(value, Variable)
        }
        known = self._by_class.get(publication.class_name, ())
        for announced in known:
            if texts.items() <= announced.texts.items():
                return
        for announced in known:
            together = announced.texts | texts
            agrees = all(announced.texts.get(name, kind) == kind for name, kind in texts.items())
            if agrees and len(together) <= MAX_ATTRIBUTES:
                announced.texts = together
                before = announced.id
                announced.id = self._announce(_text(publication.class_name, together))
                self._withdraw(before)
                return
        if self._count < MAX_CLASSES and len(texts) <= MAX_ATTRIBUTES:
            self._count += 1
            new = _InferredAdvertisement(texts)
            new.id = self._announce(_text(publication.class_name, texts))
            self._by_class.setdefault(publication.class_name, []).append(new)


def _text(class_name: str, texts: dict[str, bool]) -> str:
    predicates = tuple(
        Predicate(name, Operator.PRESENT, "" if text else 0) for name, text in texts.items()
    )
    return format_message(Advertisement(class_name, predicates))
