"""The indicators, the features derived from them, and their names in files."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

#: The column with the ids of samples.
SAMPLE: Final = "CLASS"
#: The optional column with seasons.
SEASON: Final = "season"

INDICATORS: Final = (
    "FC",
    "FE",
    "CL",
    "SOMCPH",
    "FRNAPH",
    "FRNAPH.I",
    "FRNAPH.II",
    "FRNAPH.III",
    "FRNAPH.IV",
    "RYC2056",
    "GA17",
    "HBSA.Y",
    "HBSA.T",
)
AT: Final = {name: at for at, name in enumerate(INDICATORS)}
#: Given as percentages of FRNAPH.
SHARES: Final = ("FRNAPH.I", "FRNAPH.II", "FRNAPH.III", "FRNAPH.IV")
#: Columns of reference matrices that the models do not use.
UNUSED: Final = (
    "FTOTAL",
    "COP",
    "ETHYLCOP",
    "EPICOP",
    "CHOL",
    "DiE",
    "FM.FS",
    "Hir",
    "DiC",
    "ECP",
    "ECT",
    "Dentium",
    "Adolescentis",
    "DA",
)
#: The columns of a reference matrix, in order.
REFERENCE_COLUMNS: Final = (
    *("FC", "FE", "CL", "SOMCPH", "FTOTAL", "FRNAPH", "FRNAPH I", "FRNAPH II", "FRNAPH III"),
    *("FRNAPH IV", "RYC2056", "COP", "ETHYLCOP", "EPICOP", "CHOL", "DiE", "FM-FS", "Hir", "DiC"),
    *("ECP", "ECT", "GA17", "Dentium", "Adolescentis", "DA", "HBSA-Y", "HBSA-T"),
)
#: Simulated samples have at least one of these.
DISCRIMINATIVE: Final = ("FC", "FE", "CL", "SOMCPH", "FRNAPH.II", "GA17", "HBSA.Y", "HBSA.T")

SUMS: Final = {
    "FRNAPH_I_IV": ("FRNAPH.I", "FRNAPH.IV"),
    "FRNAPH_II_III": ("FRNAPH.II", "FRNAPH.III"),
}
DIFFERENCES: Final = {
    "SOMCPH_GA17": ("SOMCPH", "GA17"),
    "FC_GA17": ("FC", "GA17"),
    "FC_SOMCPH": ("FC", "SOMCPH"),
    "FC_FE": ("FC", "FE"),
    "SOMCPH_RYC2056": ("SOMCPH", "RYC2056"),
    "FC_RYC2056": ("FC", "RYC2056"),
}
RATIO: Final = "HBSAY_HBSAT"
FEATURES: Final = (*INDICATORS, *SUMS, *DIFFERENCES, RATIO)

HUMAN: Final = 1
ANIMAL: Final = -1
#: The part of a sample's id with its source: P1-HM04.
SOURCES: Final = {"HM": "human", "CW": "cattle", "PG": "pig", "PL": "poultry"}
_SOURCE: Final = re.compile(r"-(HM|CW|PG|PL)")


class Season(IntEnum):
    WINTER = 0
    SUMMER = 1

    @property
    def position(self) -> float:
        """In the year, 0 to 1."""
        return self.value / 2


_SEASONS: Final = {
    "winter": Season.WINTER,
    "hivern": Season.WINTER,
    "summer": Season.SUMMER,
    "estiu": Season.SUMMER,
}


def column_name(text: str) -> str:
    """Normalises `FRNAPH I` and `HBSA-Y` to `FRNAPH.I` and `HBSA.Y`."""
    return re.sub(r"[ -]", ".", text.strip())


def indicator(text: str) -> str | None:
    """The indicator of a file name, which has no separators: `FRNAPHIV`."""
    wanted = re.sub(r"[^0-9A-Z]", "", text.upper())
    return next((name for name in INDICATORS if name.replace(".", "") == wanted), None)


def season(text: str) -> Season | None:
    """By name, or by the position in the year: 0 is winter, 0.5 summer."""
    named = _SEASONS.get(text.strip().lower())
    if named is not None:
        return named
    try:
        position = float(text.replace(",", "."))
    except ValueError:
        return None
    return season_at(position)


def season_at(position: float) -> Season | None:
    if not 0.0 <= position <= 1.0:
        return None
    return Season.SUMMER if 0.25 <= position < 0.75 else Season.WINTER


def trials_file(column: str, position: float | None) -> str:
    """The name of the file with the decay trials of a column, as `envFRNAPH.I-Estiu.txt`."""
    plain = re.sub(r"[^A-Za-z0-9_.]", "", column_name(column))
    is_winter = position is not None and season_at(position % 1) is Season.WINTER
    return f"env{plain}-{'Hivern' if is_winter else 'Estiu'}.txt"


def origin(sample: str) -> int:
    return HUMAN if "HM" in sample else ANIMAL


def source(sample: str) -> str | None:
    """One of four sources, if the id has it."""
    match = _SOURCE.search(sample)
    return None if match is None else SOURCES[match[1]]
