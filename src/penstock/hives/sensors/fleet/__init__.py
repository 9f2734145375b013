"""A simulated fleet: hives with people in them, sensors at their doors, frames, and the truth.

Pure: a seed and a start give the same frames, byte for byte, however they are asked for. What the
sensors send can be read by the codecs of `messages`; what people did, and what no reader can know
because it was lost with a device or on its way, is told beside it: a pipeline can be scored.
"""

from penstock.hives.sensors.fleet.catalogue import Address, Hive, Sensor
from penstock.hives.sensors.fleet.fleet import Fleet, Frame, Window
from penstock.hives.sensors.fleet.quirks import Quirks

__all__ = ["Address", "Fleet", "Frame", "Hive", "Quirks", "Sensor", "Window"]
