from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from scripts.bill_of_materials import main


def test_a_bill_lists_what_a_package_needs_and_nothing_else(tmp_path: Path) -> None:
    main(str(tmp_path), "penstock", "penstock-pump")
    broker, pump = (
        json.loads((tmp_path / f"{name}-{version(name)}.cdx.json").read_text())
        for name in ("penstock", "penstock-pump")
    )

    names = {component["name"].lower() for component in broker["components"]}
    assert {"argon2-cffi", "typer", "h11"} <= names
    assert not {"pytest", "pyspark", "penstock"} & names
    assert "penstock" in {component["name"] for component in pump["components"]}
    for document in (broker, pump):
        known = {each["bom-ref"] for each in document["components"]}
        known.add(document["metadata"]["component"]["bom-ref"])
        assert {each["ref"] for each in document["dependencies"]} == known
        assert {ref for each in document["dependencies"] for ref in each["dependsOn"]} <= known
