"""What a test of a program that uses Fairlane needs: a clock that stands still and a provider that obeys."""

from fairlane.clock import ManualClock
from fairlane.testing.provider import (
    Faults,
    ModelStats,
    ServedProvider,
    SimulatedModel,
    SimulatedProvider,
    SimulatorConfig,
    StatsReport,
    max_admitted_in_window,
    run_simulator,
    serve_in_thread,
)

__all__ = [
    "Faults",
    "ManualClock",
    "ModelStats",
    "ServedProvider",
    "SimulatedModel",
    "SimulatedProvider",
    "SimulatorConfig",
    "StatsReport",
    "max_admitted_in_window",
    "run_simulator",
    "serve_in_thread",
]
