"""Serves the simulated provider without the command line's start-up."""

import argparse
import sys
from pathlib import Path

from fairlane.core.errors import ConfigurationError
from fairlane.lab.simulator.config import SimulatedModel, SimulatorConfig
from fairlane.lab.simulator.http.server import SimulatedProvider
from fairlane.lab.simulator.http.serving import run_simulator


def main() -> None:
    """Read the arguments and serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m fairlane.lab.simulator", description=__doc__)
    parser.add_argument(
        "--config", type=Path, help="TOML with [models.NAME] tables; without it, one model: fast"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100, help="0 takes a free one")
    parser.add_argument("--ready-file", type=Path, help="gets JSON with base_url, url and pid")
    arguments = parser.parse_args()
    try:
        config = (
            SimulatorConfig.from_toml(arguments.config)
            if arguments.config is not None
            else SimulatorConfig(models={"fast": SimulatedModel()})
        )
        run_simulator(config, arguments.host, arguments.port, arguments.ready_file, _announce)
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))


def _announce(provider: SimulatedProvider) -> None:
    sys.stdout.write(f"simulated provider at {provider.base_url} (statistics: {provider.url}/stats)\n")
    sys.stdout.flush()
