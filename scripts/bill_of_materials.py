"""Writes a software bill of materials of each package: CycloneDX 1.6, as JSON.

`python -m scripts.bill_of_materials FOLDER PACKAGE...` lists the package and everything that it
needs, in the versions that are installed here. Extras are left out: nobody gets them unasked.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def _needs(found: Distribution, extras: set[str]) -> list[Requirement]:
    """Its dependencies on this platform, with those of the extras that were asked for."""
    needs = [Requirement(text) for text in found.requires or ()]
    environments = [{"extra": extra} for extra in ("", *extras)]
    return [
        need
        for need in needs
        if need.marker is None or any(map(need.marker.evaluate, environments))
    ]


def closure(package: str) -> dict[str, tuple[Distribution, set[str]]]:
    """Every distribution that the package needs, itself first, with the names it needs."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    waiting = [(_name(package), frozenset[str]())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        entry = waiting.pop()
        if entry in seen:
            continue
        seen.add(entry)
        name, extras = entry
        installed, needs = found.setdefault(name, (distribution(name), set()))
        for need in _needs(installed, set(extras)):
            needs.add(_name(need.name))
            waiting.append((_name(need.name), frozenset(need.extras)))
    return found


def _reference(found: Distribution) -> str:
    return f"pkg:pypi/{_name(found.metadata['Name'])}@{found.version}"


def _component(found: Distribution) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _reference(found),
        "name": found.metadata["Name"],
        "version": found.version,
        "purl": _reference(found),
    }
    expression = found.metadata.json.get("license_expression")
    licence = str(found.metadata.json.get("license") or "")
    if expression:
        component["licenses"] = [{"expression": expression}]
    elif licence and "\n" not in licence and len(licence) < 80:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def bill(package: str) -> dict[str, Any]:
    found = closure(package)
    own = found[_name(package)][0]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(own)},
        "components": [
            _component(each) for name, (each, _) in sorted(found.items()) if each is not own
        ],
        "dependencies": [
            {
                "ref": _reference(each),
                "dependsOn": sorted(_reference(found[need][0]) for need in needs),
            }
            for _, (each, needs) in sorted(found.items())
        ],
    }


def main(folder: str, *packages: str) -> None:
    for package in packages:
        path = Path(folder) / f"{package}-{distribution(package).version}.cdx.json"
        path.write_text(json.dumps(bill(package), indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
