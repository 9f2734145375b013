"""The schema of hives: venues, sensors, occupancy, forecasts, people, deals, alerts, payments."""

from typing import Final

HEAD: Final = "0017"
