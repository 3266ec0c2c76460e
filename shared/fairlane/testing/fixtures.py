"""Pytest fixtures: name them in a top-level conftest, ``pytest_plugins = ["fairlane.testing.fixtures"]``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.testing.provider import ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread


@pytest.fixture
def simulator_config() -> SimulatorConfig:
    """What `simulated_provider` serves: one model, ``fast``, without latency. Override it for others."""
    return SimulatorConfig(models={"fast": SimulatedModel(latency_ms=0)})


@pytest.fixture
def simulated_provider(simulator_config: SimulatorConfig) -> Iterator[ServedProvider]:
    """A simulated provider on a free loopback port, stopped when the test ends."""
    with serve_in_thread(simulator_config) as served:
        yield served
