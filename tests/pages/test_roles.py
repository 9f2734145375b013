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
    # Somebody who has just signed up, or is invited, has no role yet.
    open_to_all = {path for path, role in places if role is None}
    assert open_to_all == {"/hives/invitations", "/hives/start"}
