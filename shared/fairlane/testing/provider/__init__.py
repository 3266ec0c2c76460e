"""The simulated provider: an HTTP server that limits, delays, answers and fails as it is told."""

from fairlane.testing.provider.config import Faults, SimulatedModel, SimulatorConfig
from fairlane.testing.provider.server import SimulatedProvider
from fairlane.testing.provider.serving import ServedProvider, run_simulator, serve_in_thread
from fairlane.testing.provider.stats import ModelStats, StatsReport, max_admitted_in_window
from fairlane.testing.provider.tokens import count_tokens

__all__ = [
    "Faults",
    "ModelStats",
    "ServedProvider",
    "SimulatedModel",
    "SimulatedProvider",
    "SimulatorConfig",
    "StatsReport",
    "count_tokens",
    "max_admitted_in_window",
    "run_simulator",
    "serve_in_thread",
]
