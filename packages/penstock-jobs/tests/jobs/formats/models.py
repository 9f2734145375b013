"""Requests and responses of all kinds, for the tests to write and read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from penstock_jobs.model import (
    Aging,
    BuildModels,
    Fake,
    JobResponse,
    PredictModels,
    VoteResult,
)

#: What XML can carry, and a reader does not take for the blanks around a value.
plain = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp", "Cn", "Co")),
    max_size=12,
)
words = plain.filter(lambda text: bool(text.strip()))
finite = st.floats(allow_nan=False, allow_infinity=False)
shares = st.floats(0, 1)
counts = st.integers(0, 10**6)
zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.builds(
    lambda seconds, zone: datetime.fromtimestamp(seconds / 1000, zone),
    st.integers(0, 4 * 10**12),
    zones,
)
columns = st.dictionaries(words, st.lists(plain, max_size=4).map(tuple), max_size=4)
trials = st.lists(st.tuples(finite, finite), max_size=4).map(tuple)
agings = st.dictionaries(
    words,
    st.lists(
        st.builds(Aging, st.lists(trials, max_size=3).map(tuple), st.none() | finite), max_size=3
    ).map(tuple),
    max_size=3,
)
requests: st.SearchStrategy[Any] = (
    st.builds(Fake, words, st.floats(0, 1e9), st.floats(1e-3, 1e6), type=st.just("fake"))
    | st.builds(BuildModels, words, columns, agings, type=st.just("build_models"))
    | st.builds(
        PredictModels, words, columns, st.binary(max_size=200), type=st.just("predict_models")
    )
)
results = st.builds(
    VoteResult,
    words | st.just(""),
    counts,
    counts,
    st.none() | shares,
    st.none() | columns,
    st.none() | st.dictionaries(words, st.lists(counts, max_size=3).map(tuple), max_size=3),
)


@st.composite
def responses(draw: st.DrawFn) -> JobResponse:
    kind = draw(st.sampled_from(["fake", "build_models", "predict_models"]))
    return JobResponse(
        draw(words),
        kind,
        draw(shares),
        draw(st.none() | moments),
        draw(st.none() | moments),
        draw(st.none() | plain),
        tuple(draw(st.lists(results, max_size=2))) if kind == "predict_models" else (),
        draw(st.binary(max_size=200)) if kind == "build_models" else b"",
    )
