"""For processes of sr3 3.3.1: its MQTT module uses `copy` and does not import it."""

import builtins
import copy

builtins.copy = copy  # type: ignore[attr-defined]
