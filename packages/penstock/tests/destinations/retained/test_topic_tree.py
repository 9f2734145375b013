"""The tree of retained keys against the obvious: a dictionary, and a pattern tried on each key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.retained.topic_tree import TopicTree

words = st.sampled_from([b"a", b"b", b"", b"$s", b"long"])
keys = st.lists(words, min_size=1, max_size=5).map(b".".join)
patterns = st.tuples(st.lists(st.one_of(words, st.just(b"*")), max_size=4), st.booleans()).map(
    lambda drawn: b".".join([*drawn[0], b"#"] if drawn[1] or not drawn[0] else drawn[0])
)


def matches(pattern: bytes, key: bytes) -> bool:
    """Word by word, as MQTT has it."""
    wanted, levels = pattern.split(b"."), key.split(b".")
    if wanted[0] in (b"*", b"#") and key.startswith(b"$"):
        return False
    if wanted[-1] == b"#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        word in (b"*", level) for word, level in zip(wanted, levels, strict=True)
    )


def tree_of(*keys: bytes) -> TopicTree:
    tree = TopicTree()
    for key in keys:
        tree.put(key, b"it")
    return tree


def leaves(tree: TopicTree) -> dict[Any, Any]:
    return tree._root


@given(st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=4))), max_size=30))
def test_it_is_a_dictionary(changes: list[tuple[bytes, bytes | None]]) -> None:
    tree, model = TopicTree(), dict[bytes, bytes]()
    for key, value in changes:
        assert tree.get(key) == model.get(key)
        if value is None:
            assert tree.pop(key) == model.pop(key, None)
        else:
            assert tree.put(key, value) == model.get(key)
            model[key] = value
        assert len(tree) == len(model)
    assert sorted(tree) == sorted(model)
    assert {key: tree.get(key) for key in model} == model


@given(st.lists(keys, unique=True, max_size=20), patterns)
def test_a_pattern_finds_the_keys_that_match_and_no_others(
    kept: list[bytes], pattern: bytes
) -> None:
    found = list(tree_of(*kept).match(pattern))
    assert sorted(found) == sorted(key for key in kept if matches(pattern, key))


@given(st.lists(keys, unique=True, max_size=20), st.randoms())
def test_what_is_left_after_removals_is_as_if_nothing_else_had_been_there(
    kept: list[bytes], random: Any
) -> None:
    gone = random.sample(kept, len(kept) // 2)
    tree = tree_of(*kept)
    for key in gone:
        tree.pop(key)
    assert leaves(tree) == leaves(tree_of(*(key for key in kept if key not in gone)))


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        (b"sport.tennis.#", b"sport.tennis", True),  # the parent too
        (b"sport.tennis.#", b"sport.tennis.player1.ranking", True),
        (b"sport.tennis.*", b"sport.tennis", False),
        (b"sport.*", b"sport.", True),  # an empty level is a level
        (b"*.*", b".finance", True),
        (b"*", b".finance", False),
        (b"#", b"$SYS.uptime", False),
        (b"*.uptime", b"$SYS.uptime", False),
        (b"$SYS.#", b"$SYS.uptime", True),
        (b"$SYS.*", b"$SYS.uptime", True),
    ],
)
def test_levels_and_wildcards(pattern: bytes, key: bytes, expected: bool) -> None:
    assert list(tree_of(key).match(pattern)) == [key] * expected


def test_a_key_alone_on_its_way_is_one_leaf() -> None:
    assert leaves(tree_of(b"a.b.c")) == {b"a": b"\x04.b.cit"}


def test_keys_with_as_many_levels_as_can_be_work() -> None:
    deep = [b"." * 255, b"." * 254 + b"x", b"." * 254, b"x" * 255]
    tree = tree_of(*deep)
    assert sorted(tree.match(b"#")) == sorted(deep)
    assert sorted(tree.match(b"*." * 254 + b"*.#")) == sorted(deep[:3])
    for key in deep:
        assert tree.pop(key) == b"it"
    assert leaves(tree) == {}


def test_the_tree_may_change_while_keys_are_drawn() -> None:
    tree = tree_of(*(b"a.%d" % number for number in range(10)))
    drawn = tree.match(b"a.*")
    first = next(drawn)
    for number in range(5, 1000):
        tree.put(b"a.%d.more" % number, b"new")
    for number in range(5):
        tree.pop(b"a.%d" % number)
    rest = {key for key in drawn if tree.get(key) is not None}
    assert rest | {first} >= {b"a.%d" % number for number in range(5, 10)}


def test_values_are_those_of_the_moment() -> None:
    tree = tree_of(b"a.b.1", b"a.b.2", b"a.c")
    items = tree.items(b"#")
    assert next(items) == (b"a.b.1", b"it")
    tree.pop(b"a.b.1")  # folds a.b into a leaf, apart from the node that is walked
    tree.put(b"a.b.2", b"new")
    tree.pop(b"a.c")
    assert list(items) == [(b"a.b.2", b"new")]


class Visits(dict[Any, Any]):
    """The words of a node, counting who looks."""

    looks = 0

    def get(self, key: Any, default: Any = None) -> Any:
        Visits.looks += 1
        return super().get(key, default)


def test_keys_that_do_not_match_cost_nothing() -> None:
    def looks(others: int) -> int:
        tree = tree_of(b"sensors.5.report", b"sensors.5.event")
        for number in range(10, 10 + others):
            tree.put(b"sensors.%d.report" % number, b"it")
            tree.put(b"other%d.5.report" % number, b"it")
        tree._root = Visits(tree._root)
        tree._root[b"sensors"] = Visits(tree._root[b"sensors"])
        Visits.looks = 0
        assert len(list(tree.match(b"sensors.5.#"))) == 2
        return Visits.looks

    assert looks(10) == looks(5000)
