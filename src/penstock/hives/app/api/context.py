"""What an endpoint finds the rest of the application by."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from penstock.hives.app.resources import Resources
from penstock.hives.app.services import Services


def resources(connection: HTTPConnection) -> Resources:
    found = connection.app.state.resources
    assert isinstance(found, Resources)
    return found


def services(connection: HTTPConnection) -> Services:
    return resources(connection).services


Context = Annotated[Resources, Depends(resources)]
Served = Annotated[Services, Depends(services)]
