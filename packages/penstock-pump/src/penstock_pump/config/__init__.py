"""What a component is told: one typed model, from TOML or from Sarracenia's own files."""

from penstock_pump.config.settings import Component, PumpSettings

__all__ = ["Component", "PumpSettings"]
