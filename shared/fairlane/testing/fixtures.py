"""Pytest fixtures; a top-level conftest loads them: ``pytest_plugins = ["fairlane.testing.fixtures"]``."""

from collections.abc import Iterator

import pytest

from fairlane.lab.simulator.config import SimulatedModel, SimulatorConfig
from fairlane.lab.simulator.http.serving import ServedProvider, serve_in_thread


@pytest.fixture
def simulator_config() -> SimulatorConfig:
    """The configuration of `simulated_provider`: one model, ``fast``, without latency. Override it."""
    return SimulatorConfig(models={"fast": SimulatedModel(latency_ms=0)})


@pytest.fixture
def simulated_provider(simulator_config: SimulatorConfig) -> Iterator[ServedProvider]:
    """A simulated provider on a free loopback port, which stops after the test."""
    with serve_in_thread(simulator_config) as served:
        yield served
