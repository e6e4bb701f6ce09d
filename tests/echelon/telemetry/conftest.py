"""Examples that are the same in every run, and for which a busy machine may take its time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "telemetry", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("telemetry")
