"""Advertisements for publishers that do not advertise, inferred from their publications.

There is one advertisement per class with the types of all attributes seen; a new attribute replaces
it. A class whose attribute is sometimes text and sometimes a number has several. The numbers of
classes and attributes are limited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.content.formatter import format_message
from penstock.content.messages import Advertisement, Operator, Predicate, Publication, Variable

#: Limits per publisher: advertisements, and attributes of one.
MAX_CLASSES: Final = 1024
MAX_ATTRIBUTES: Final = 128


class _InferredAdvertisement:
    __slots__ = ("id", "texts")

    def __init__(self, texts: dict[str, bool]) -> None:
        self.texts = texts  #: whether each attribute is text
        self.id = ""


class AdvertisementInference:
    """`announce` sends an advertisement and returns its id, which `withdraw` takes."""

    def __init__(self, announce: Callable[[str], str], withdraw: Callable[[str], None]) -> None:
        self._announce = announce
        self._withdraw = withdraw
        self._by_class: dict[str, list[_InferredAdvertisement]] = {}
        self._count = 0

    def on_publication(self, publication: Publication) -> None:
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
            merged = announced.texts | texts
            agrees = all(announced.texts.get(name, kind) == kind for name, kind in texts.items())
            if agrees and len(merged) <= MAX_ATTRIBUTES:
                announced.texts = merged
                before = announced.id
                announced.id = self._announce(_text(publication.class_name, merged))
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
