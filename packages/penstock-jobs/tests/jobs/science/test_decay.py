"""How indicators fade, from trials in files and requests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock_jobs.errors import DatasetError
from penstock_jobs.model import Aging
from penstock_jobs.science import synthetic
from penstock_jobs.science.decay import (
    DecayCoefficients,
    decay_coefficients,
    parse_file_name,
    read_trials,
    trial_slope,
)
from penstock_jobs.science.indicators import AT, Season

FILE = "# Coliformes fecals, estiu: assaig n\xba 1\n0 6.0\n24\t5.5 # un dia\n48 5,0\n\n0 4\n24 3\n"


def test_an_empty_line_separates_trials_and_so_does_a_time_of_zero() -> None:
    both = (((0.0, 6.0), (24.0, 5.5), (48.0, 5.0)), ((0.0, 4.0), (24.0, 3.0)))
    assert read_trials(FILE.encode("latin-1")) == both
    assert read_trials(FILE.replace("\n\n", "\n").encode("latin-1")) == both


def test_a_line_that_is_no_point_is_named() -> None:
    with pytest.raises(
        DatasetError, match=r"row 2, column envFC-Estiu\.txt: 'one two' is not a time"
    ):
        read_trials(b"0 1\none two\n", "envFC-Estiu.txt")


def test_names_of_files() -> None:
    assert parse_file_name("envFC-Estiu.txt") == ("FC", Season.SUMMER)
    assert parse_file_name("envFRNAPHII-Hivern.txt") == ("FRNAPH.II", Season.WINTER)
    assert parse_file_name("envHBSA-Y-Winter.txt") == ("HBSA.Y", Season.WINTER)
    assert parse_file_name("envDiC-Estiu.txt") is None, "not an indicator of the models"
    assert parse_file_name("envFC-Spring.txt") is None
    assert parse_file_name("readme.txt") is None


def test_the_slope_of_a_trial_is_by_least_squares() -> None:
    assert trial_slope(((0, 6), (24, 5.5), (48, 5))) == pytest.approx(-0.5 / 24)
    hours, values = np.array([0, 10, 40, 90]), np.array([5, 4.6, 4.4, 3])
    expected = np.polyfit(hours, values, 1)[0]
    assert trial_slope(tuple(zip(hours, values, strict=True))) == pytest.approx(expected)


def test_a_trial_that_was_looked_at_once_has_no_slope() -> None:
    assert math.isnan(trial_slope(((5.0, 3.0),)))
    assert math.isnan(trial_slope(((5.0, 3.0), (5.0, 2.0))))


def test_slopes_of_trials_are_averaged_by_indicator_and_season() -> None:
    fast, slow, once = ((0.0, 5.0), (10.0, 4.0)), ((0.0, 5.0), (10.0, 4.5)), ((0.0, 5.0),)
    found = decay_coefficients(
        {"FC": (Aging((fast, slow, once), 0.5), Aging((slow,), 0.0)), "DiC": (Aging((fast,)),)}
    )
    assert found.of(Season.SUMMER)[AT["FC"]] == pytest.approx(-0.075)
    assert found.of(Season.WINTER)[AT["FC"]] == pytest.approx(-0.05)


def test_a_position_outside_the_year_is_refused() -> None:
    with pytest.raises(DatasetError, match=r"column FC: 2\.0 is not a position in the year"):
        decay_coefficients({"FC": (Aging((), 2.0),)})


def test_synthetic_trials_give_back_the_slopes_they_were_made_with(
    slopes: DecayCoefficients,
) -> None:
    made = np.array([shape.slopes for shape in synthetic._SHAPES.values()]).T
    assert np.abs(slopes.slopes - made).max() < 2.5e-3


def test_synthetic_files_read_as_what_was_written() -> None:
    aging = synthetic.agings(3)["GA17"][0]
    assert read_trials(synthetic.trials_text(aging).encode()) == aging.trials
