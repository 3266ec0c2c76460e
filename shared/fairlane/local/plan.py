"""The parts of a local stack, with their command lines and environments. Schedulers and workers start as
modules, since importing the command line first would double the time.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlane.embedded.ports import FLOWER_PORT

# -P: files of the working directory must not shadow Fairlane's modules.
MODULE = (sys.executable, "-P", "-m")
FAIRLANE = (*MODULE, "fairlane.cli")
SIMULATED = {"sim": "openai"}
_SIGNED = frozenset({"bedrock", "vertex"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """The processes to run and their options.

    ``config`` is the ``fairlane.toml`` that every role reads, ``env`` holds further variables for all. The
    stack uses the server at ``redis_url``, or starts one. With ``simulate`` the connections in ``simulated``
    (name → protocol) lead to a simulated provider, which reads ``simulate_config``. If a port is taken, the
    stack uses another.
    """

    data_dir: Path
    config: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    redis_url: str | None = None
    redis_port: int | None = None
    workers: int = 2
    schedulers: int = 1
    slots: int | None = None
    simulate: bool = False
    simulate_config: Path | None = None
    simulated: Mapping[str, str] = field(default_factory=lambda: dict(SIMULATED))
    simulator_port: int | None = None
    flower: bool = False
    flower_port: int = FLOWER_PORT

    def ready_file(self, name: str) -> Path:
        """The file that the process ``name`` writes once it is ready."""
        return self.data_dir.resolve() / "run" / f"{name}.ready"

    def log(self, name: str) -> Path:
        """The log file of the process ``name``."""
        return self.data_dir.resolve() / "logs" / f"{name}.log"

    def environment(self, redis_url: str, simulator_url: str | None) -> dict[str, str]:
        """Variables for every role, on top of the environment it inherits."""
        environment = {"PYTHONUNBUFFERED": "1", **self.env, "FAIRLANE_REDIS__URL": redis_url}
        if self.config is not None:
            environment["FAIRLANE_CONFIG"] = str(self.config.resolve())
        if simulator_url is not None:
            for name, protocol in self.simulated.items():
                environment |= connection_variables(name, protocol, address_of(simulator_url, protocol))
        return environment

    def scheduler_command(self, name: str) -> list[str]:
        """The command line of a scheduler."""
        return [*MODULE, "fairlane_scheduler", "--name", name, "--ready-file", str(self.ready_file(name))]

    def worker_command(self, name: str) -> list[str]:
        """The command line of a worker."""
        slots = [] if self.slots is None else ["--slots", str(self.slots)]
        ready_file = str(self.ready_file(name))
        return [*MODULE, "fairlane_workers", "--name", name, "--ready-file", ready_file, *slots]

    def simulator_command(self, name: str, port: int) -> list[str]:
        """The command line of the simulated provider."""
        config = [] if self.simulate_config is None else ["--config", str(self.simulate_config.resolve())]
        ready_file = str(self.ready_file(name))
        return [*FAIRLANE, "simulate", "--port", str(port), "--ready-file", ready_file, *config]

    def flower_command(self, port: int) -> list[str]:
        """The command line of Flower."""
        return [*FAIRLANE, "flower", "--port", str(port)]


def connection_variables(name: str, protocol: str, base_url: str) -> dict[str, str]:
    """The variables that point a connection to the simulated provider, without request signing."""
    section = f"FAIRLANE_CONNECTIONS__{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
    variables = {f"{section}__PROTOCOL": protocol, f"{section}__BASE_URL": base_url}
    return variables | ({f"{section}__AUTH": "none"} if protocol in _SIGNED else {})


_DEFAULT = "/v1"
_PATHS: Mapping[str, str] = {
    "azure_openai": "",
    "bedrock": "",
    "gemini": "/v1beta",
    "http": "",
    "ollama": "",
    "vertex": "/v1/projects/simulated/locations/global",
}


def address_of(base_url: str, protocol: str) -> str:
    """The ``base_url`` of a connection of that protocol; ``base_url`` is `SimulatedProvider.base_url`."""
    return base_url.removesuffix(_DEFAULT) + _PATHS.get(protocol, _DEFAULT)
