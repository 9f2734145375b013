"""Whether a formula of a metric can be meant: the language is the nights' (`hives/analytics`)."""

from __future__ import annotations

from penstock.hives.analytics.formula import Formula, FormulaRefused
from penstock.hives.app.domain.errors import Fault, Invalid


def check_formula(text: str) -> None:
    """Raises `Invalid`, with what is wrong."""
    try:
        Formula.parse(text)
    except FormulaRefused as error:
        raise Invalid("no such formula", [Fault("formula", str(error))]) from None
