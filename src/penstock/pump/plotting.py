"""A day of the pump as a picture: how much each exchange carried, how late, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import ConfigurationError

_KINDS: Final = (".svg", ".png", ".pdf")


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Rows of the summary, of one day."""
    if path.suffix not in _KINDS:
        raise ConfigurationError(f"{path}: a picture is one of {', '.join(_KINDS)}")
    # The object, not pyplot: that has state of its own, and looks for a screen.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.2 + 0.45 * len(rows)), layout="constrained")
    names = [row["exchange"] or "(default)" for row in rows]
    volume, latency, outcome = figure.subplots(1, 3, sharey=True)
    volume.barh(names, [row["bytes"] / 1e6 for row in rows], color="#4878a8")
    volume.set_xlabel("MB announced")
    for name, shade in (("latency_p95", "#c9d6e3"), ("latency_p50", "#4878a8")):
        values = [row[name] or 0.0 for row in rows]
        latency.barh(names, values, color=shade, label=name.removeprefix("latency_"))
    latency.set_xlabel("seconds after the first announcement")
    left = [0] * len(rows)
    for name, shade in (
        ("done", "#5a9367"),
        ("unchanged", "#b8c9b0"),
        ("duplicates", "#d9a441"),
        ("failed", "#b5484d"),
    ):
        counts = [int(row[name]) for row in rows]
        outcome.barh(names, counts, left=left, color=shade, label=name)
        left = [sum(pair) for pair in zip(left, counts, strict=True)]
    outcome.set_xlabel("reports, and announcements made again")
    for axes in (latency, outcome):
        axes.legend(frameon=False, fontsize="small")
    volume.invert_yaxis()
    figure.suptitle(f"The pump on {rows[0]['day']}")
    figure.savefig(path)
