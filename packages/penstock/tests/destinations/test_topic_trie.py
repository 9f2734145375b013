"""Topic patterns against the obvious way: a regular expression for each."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destinations.topic_trie import TopicTrie, TrieNode

words = st.sampled_from([b"a", b"b", b"c", b""])
keys = st.lists(words, max_size=6).map(b".".join)
patterns = st.lists(st.one_of(words, st.sampled_from([b"*", b"#"])), max_size=5).map(b".".join)


def oracle(pattern: bytes) -> re.Pattern[bytes]:
    """Over a key whose every word is followed by a dot: no words is the empty key."""
    spelled = {b"*": rb"[^.]*\.", b"#": rb"(?:[^.]*\.)*"}
    parts = pattern.split(b".") if pattern else []
    return re.compile(b"".join(spelled.get(part, re.escape(part) + rb"\.") for part in parts))


def matches(pattern: bytes, key: bytes) -> bool:
    return oracle(pattern).fullmatch(key + b"." if key else b"") is not None


@given(st.lists(patterns, max_size=8), keys)
def test_a_key_finds_the_patterns_it_matches_and_no_others(bound: list[bytes], key: bytes) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for number, pattern in enumerate(bound):
        trie.add(pattern, number)

    expected = [number for number, pattern in enumerate(bound) if matches(pattern, key)]
    assert sorted(trie.match(key)) == expected


@given(st.lists(st.tuples(patterns, st.integers(0, 2)), max_size=10), st.data())
def test_what_is_removed_is_gone_and_the_rest_stays(
    bound: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for pattern, value in bound:
        trie.add(pattern, value)
    gone = data.draw(st.lists(st.sampled_from(range(len(bound))), unique=True)) if bound else []
    for index in gone:
        trie.remove(*bound[index])

    left = [one for index, one in enumerate(bound) if index not in gone]
    for key in data.draw(st.lists(keys, min_size=1, max_size=5)):
        found = trie.match(key)
        assert len(found) == len(set(found)), "each once"
        assert set(found) == {value for pattern, value in left if matches(pattern, key)}


@given(st.lists(st.tuples(patterns, st.integers(0, 2)), max_size=10))
def test_an_emptied_trie_keeps_no_nodes(bound: list[tuple[bytes, int]]) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for pattern, value in bound:
        trie.add(pattern, value)
    for pattern, value in reversed(bound):
        trie.remove(pattern, value)
    assert trie._root.empty


def test_removing_what_was_never_added_changes_nothing() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(b"a.b", "kept")
    trie.remove(b"a.b.c", "kept")
    trie.remove(b"*", "kept")
    trie.remove(b"a.b", "another")
    assert trie.match(b"a.b") == ["kept"]


def test_a_hundred_thousand_patterns_fit_a_small_machine() -> None:
    count = 10_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        trie: TopicTrie[int] = TopicTrie()
        for number in range(count):
            trie.add(b"sensors.%d.report" % number, 0)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 700


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        (b"#", b"", True),
        (b"*", b"", False),  # an empty key has no words, as in RabbitMQ
        (b"", b"", True),
        (b"*", b"a", True),
        (b"*.*", b".", True),  # two empty words
        (b"a.#", b"a", True),
        (b"#.a", b"a", True),
        (b"a.#.b", b"a.b", True),
        (b"a.*.b", b"a.b", False),
        (b"#.#", b"a.b.c", True),
        (b"stocks.*.nyse", b"stocks.usd.nyse", True),
    ],
)
def test_words_and_wildcards(pattern: bytes, key: bytes, expected: bool) -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(pattern, "it")
    assert (trie.match(key) == ["it"]) is expected


class Visits(dict[bytes, "TrieNode[int]"]):
    """The words of a node, counting who looks."""

    looks = 0

    def get(self, key: bytes, default: Any = None) -> Any:
        Visits.looks += 1
        return super().get(key, default)


def watch(node: TrieNode[int]) -> None:
    words = node.words or {}
    for child in [*words.values(), node.any, node.many]:
        if child is not None:
            watch(child)
    node.words = Visits(words)


def visits(others: int) -> int:
    """How many nodes a match looks at, beside so many patterns that do not match."""
    trie: TopicTrie[int] = TopicTrie()
    trie.add(b"sensors.*.report", 0)
    trie.add(b"sensors.#", 1)
    for number in range(others):
        trie.add(b"other%d.*.#" % number, number)
        trie.add(b"sensors.%d.event" % number, number)
        trie.add(b"*.%d.nothing" % number, number)
    watch(trie._root)
    Visits.looks = 0
    assert {0, 1} <= set(trie.match(b"sensors.x.report"))
    return Visits.looks


def test_patterns_that_do_not_match_cost_nothing() -> None:
    assert visits(10) == visits(5000)
