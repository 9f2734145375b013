"""The headers exchange against the rule in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.contract import Binding
from penstock.core.errors import PreconditionFailed
from penstock.destinations.exchange_types import X_MATCH_VALUES, HeadersRouter
from tests.doubles import message

names = st.sampled_from(["a", "b", "x-c"])
values = st.one_of(st.none(), st.integers(0, 2), st.sampled_from(["0", "1", ""]), st.booleans())
tables = st.dictionaries(names, values, max_size=3)


def routed(arguments: dict[str, Any], headers: dict[str, Any] | None) -> bool:
    router = HeadersRouter()
    target: Any = object()
    router.add(Binding("amq.headers", target, "", arguments))
    return list(router.match(b"", message(headers=headers))) == [target]


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


@given(tables, tables, st.sampled_from([*X_MATCH_VALUES, None]))
def test_the_headers_decide(
    arguments: dict[str, Any], headers: dict[str, Any], match: str | None
) -> None:
    ignored = "x-" if match in ("all", "any", None) else "-"
    wanted = {key: value for key, value in arguments.items() if not key.startswith(ignored)}
    hits = [
        name in headers and (value is None or same(headers[name], value))
        for name, value in wanted.items()
    ]
    expected = any(hits) if match and match.startswith("any") else all(hits)
    if match is not None:
        arguments = {**arguments, "x-match": match}
    assert routed(arguments, headers) is expected


def test_no_headers_are_like_empty_ones() -> None:
    assert routed({}, None)
    assert not routed({"a": None}, None)


@pytest.mark.parametrize("match", ["some", "", 1, None, True])
def test_an_unknown_rule_is_refused(match: Any) -> None:
    target: Any = object()
    with pytest.raises(PreconditionFailed, match="x-match"):
        HeadersRouter().check(Binding("amq.headers", target, "", {"x-match": match}))


@given(st.lists(st.tuples(tables, st.sampled_from(X_MATCH_VALUES), st.booleans())), tables)
def test_many_bindings_are_found_as_each_alone(
    bindings: list[tuple[dict[str, Any], str, bool]], headers: dict[str, Any]
) -> None:
    router = HeadersRouter()
    made = []
    for number, (arguments, match, stays) in enumerate(bindings):
        target: Any = number
        binding = Binding("amq.headers", target, "", {**arguments, "x-match": match})
        router.add(binding)
        made.append((binding, stays))
    for binding, stays in made:
        if not stays:
            router.remove(binding)
    expected = {
        binding.destination
        for binding, stays in made
        if stays and routed(binding.arguments, headers)
    }
    assert set(router.match(b"", message(headers=headers))) == expected


def test_values_that_cannot_be_looked_up_are_compared() -> None:
    for value in ([1, 2], {"k": 1}, b"bytes", 2.0):
        assert routed({"a": value}, {"a": value})
        assert not routed({"a": value}, {"a": [0]})


def test_what_is_removed_no_longer_matches() -> None:
    router = HeadersRouter()
    target: Any = object()
    one, other = (Binding("h", target, "", {"a": number}) for number in (1, 2))
    router.add(one)
    router.add(other)
    router.remove(one)
    assert list(router.match(b"", message(headers={"a": 1}))) == []
    assert list(router.match(b"", message(headers={"a": 2}))) == [target]
