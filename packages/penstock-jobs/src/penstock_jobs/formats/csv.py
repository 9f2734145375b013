"""Data sets as CSV, with `;` between cells, as laboratories write them."""

from __future__ import annotations

import csv
import io
from itertools import zip_longest

from penstock_jobs.model import Dataset


def write_csv(dataset: Dataset) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\n")
    writer.writerow(dataset)
    writer.writerows(zip_longest(*dataset.values(), fillvalue=""))
    return text.getvalue()
