"""Advertisements made of publications: each conforms to one, and there is an end to them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.content import (
    Advertisement,
    Publication,
    conforms,
    parse_advertisement,
    parse_publication,
)
from penstock.content.advertisement_inference import (
    MAX_ATTRIBUTES,
    MAX_CLASSES,
    AdvertisementInference,
)

publications = st.builds(
    Publication,
    st.sampled_from(["a", "b"]),
    st.dictionaries(
        st.sampled_from(["x", "y", "z"]),
        st.one_of(st.integers(-5, 5), st.floats(-5, 5), st.text(max_size=3)),
    ),
)


class Announced:
    """What stands at the moment."""

    def __init__(self) -> None:
        self.standing: dict[str, Advertisement] = {}
        self._count = 0
        self.announcing = AdvertisementInference(self._announce, self._withdraw)

    def _announce(self, text: str) -> str:
        self._count += 1
        self.standing[str(self._count)] = parse_advertisement(text)
        return str(self._count)

    def _withdraw(self, id_: str) -> None:
        del self.standing[id_]


@given(st.lists(publications, max_size=12))
def test_all_that_was_seen_conforms_to_what_is_announced(seen: list[Publication]) -> None:
    announced = Announced()

    for publication in seen:
        announced.announcing.on_publication(publication)

    for publication in seen:
        assert any(conforms(publication, one) for one in announced.standing.values())


def test_what_agrees_is_announced_together() -> None:
    announced = Announced()
    for said in ("[x,1]", "[y,'t']", "[x,2.5],[y,'u']", "[x,3]"):
        announced.announcing.on_publication(parse_publication(f"[class,a],{said}"))

    assert list(announced.standing.values()) == [
        parse_advertisement("[class,eq,a],[x,isPresent,0],[y,isPresent,'']")
    ]


def test_text_once_and_number_another_time_are_announced_apart() -> None:
    announced = Announced()
    announced.announcing.on_publication(Publication("a", {"x": 1}))
    announced.announcing.on_publication(Publication("a", {"x": "1"}))

    assert len(announced.standing) == 2


def test_names_without_end_are_not_announced() -> None:
    announced = Announced()
    for number in range(MAX_CLASSES + 10):
        announced.announcing.on_publication(Publication(f"k{number}", {}))
    assert len(announced.standing) == MAX_CLASSES

    announced = Announced()
    for number in range(MAX_ATTRIBUTES * 3):
        announced.announcing.on_publication(Publication("a", {f"x{number}": 1}))
    assert max(len(one.predicates) for one in announced.standing.values()) == MAX_ATTRIBUTES
