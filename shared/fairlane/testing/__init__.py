"""Tools to test a program that uses Fairlane: a manual clock and a simulated provider."""

from fairlane.core.clock import ManualClock
from fairlane.lab.simulator.config import Faults, SimulatedModel, SimulatorConfig
from fairlane.lab.simulator.http.server import SimulatedProvider
from fairlane.lab.simulator.http.serving import ServedProvider, run_simulator, serve_in_thread
from fairlane.lab.simulator.model.stats import ModelStats, StatsReport, max_admitted_in_window

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
