"""Every page and download of the dashboards needs a role, whichever package it comes from."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from penstock_store.dashboard.pages import SectionContext


def test_every_page_and_download_needs_a_role(tmp_path: Path) -> None:
    sections = [
        entry.load()(SectionContext(data=tmp_path, broker="amqp://127.0.0.1:1", database=None))
        for entry in entry_points(group="penstock.dashboards")
    ]
    places = [
        (each.path, each.role)
        for section in sections
        for each in (*section.pages, *section.downloads)
    ]
    assert {section.name for section in sections} >= {"Hives", "Jobs"}
    # Somebody who is invited has no role before accepting.
    assert [path for path, role in places if role is None] == ["/hives/invitations"]
