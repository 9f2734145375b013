"""A simulated fleet: visitors, hives, sensors, the frames they send, and the ground truth.

Pure: the same seed and start give the same frames, byte for byte. The codecs of `protocol` decode
the frames. `ground_truth` records what happened and what was lost, so that a pipeline can be
scored.
"""

from penstock_hives.sensors.fleet.catalogue import (
    SimulatedAddress,
    SimulatedHive,
    SimulatedSensor,
)
from penstock_hives.sensors.fleet.fleet import Fleet, FrameWindow, SensorFrame
from penstock_hives.sensors.fleet.quirks import Quirks

__all__ = [
    "Fleet",
    "FrameWindow",
    "Quirks",
    "SensorFrame",
    "SimulatedAddress",
    "SimulatedHive",
    "SimulatedSensor",
]
