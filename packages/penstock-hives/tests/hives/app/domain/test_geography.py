"""Distances, directions and boxes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.errors import InvalidRequest
from penstock_hives.places.models import EARTH_KM, BoundingBox, GeoPoint

points = st.builds(GeoPoint, st.floats(-90, 90), st.floats(-180, 180))


@pytest.mark.parametrize(
    ("start", "end", "km", "bearing"),
    [
        (GeoPoint(52.5200, 13.4050), GeoPoint(48.1351, 11.5820), 504.4, 195.6),  # Berlin, Munich
        (GeoPoint(0, 0), GeoPoint(0, 90), math.pi / 2 * EARTH_KM, 90.0),
        (GeoPoint(0, 179.5), GeoPoint(0, -179.5), 111.195, 90.0),  # across the date line
        (GeoPoint(90, 0), GeoPoint(-90, 0), math.pi * EARTH_KM, None),
    ],
)
def test_known_distances_and_directions(
    start: GeoPoint, end: GeoPoint, km: float, bearing: float | None
) -> None:
    assert start.distance_km(end) == pytest.approx(km, rel=1e-3)
    if bearing is not None:
        assert start.bearing(end) == pytest.approx(bearing, abs=0.5)


@given(points, points)
def test_a_distance_is_the_same_both_ways_and_half_the_globe_at_most(
    one: GeoPoint, two: GeoPoint
) -> None:
    there = one.distance_km(two)

    assert there == pytest.approx(two.distance_km(one), abs=1e-6)
    assert 0 <= there <= math.pi * EARTH_KM + 1e-6


@given(points, points, st.floats(0.1, 20_000))
def test_a_box_around_a_circle_leaves_nothing_of_it_out(
    centre: GeoPoint, other: GeoPoint, km: float
) -> None:
    if centre.distance_km(other) <= km * (1 - 1e-9):
        grown = BoundingBox.around(centre, km * (1 + 1e-6))
        assert grown.contains(other)


@pytest.mark.parametrize(
    "text", ["", "1", "1,2,3", "91,0", "0,181", "nan,0", "inf,0", "a,b", "1;2", " , "]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        GeoPoint.parse(text)


@pytest.mark.parametrize("text", ["", "1,2,3", "0,10,0,5", "0,0,181,1", "nan,0,0,0"])
def test_what_is_no_box_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        BoundingBox.parse(text)
