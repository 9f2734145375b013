"""`python -m scripts.openapi_files DIR` writes the OpenAPI documents of all HTTP APIs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.server.management.api_description import openapi_document
from penstock.server.management.server import ROUTES
from penstock_hives.api.app import create_app as create_hives
from penstock_hives.settings import HivesSettings
from penstock_jobs.http.app import create_app as create_jobs


def documents() -> dict[str, dict[str, Any]]:
    """The applications are described, not started, so they need no servers."""
    hives = create_hives(cast("Any", SimpleNamespace(settings=HivesSettings())))
    jobs = create_jobs(cast("Any", None))
    return {
        "management": openapi_document(ROUTES),
        "hives": hives.openapi(),
        "jobs": jobs.openapi(),
    }


if __name__ == "__main__":
    for name, document in documents().items():
        (Path(sys.argv[1]) / f"openapi-{name}.json").write_text(json.dumps(document, indent=1))
