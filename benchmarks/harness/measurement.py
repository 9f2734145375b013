"""One run of one scenario on one broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """`messages` were published, and `deliveries` came of them."""

    scenario: str
    peer: str
    messages: int
    deliveries: int
    wall_seconds: float
    broker_cpu_seconds: float
    generator_cpu_seconds: float
    latency_p50: float
    latency_p99: float
    rss_bytes: int

    @property
    def rate(self) -> float:
        return self.messages / self.wall_seconds

    @property
    def broker_cpu_per_million(self) -> float:
        return self.broker_cpu_seconds / self.messages * 1e6

    @property
    def broker_cpu_per_million_deliveries(self) -> float:
        return self.broker_cpu_seconds / self.deliveries * 1e6

    @property
    def generator_cpu_per_million(self) -> float:
        return self.generator_cpu_seconds / self.messages * 1e6
