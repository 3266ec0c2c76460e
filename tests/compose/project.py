"""A Compose project of our own: its containers, who leads, and what is done to them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fairlane.config.environment import process_environment
from fairlane.store.keys import Keys

ROOT = Path(__file__).parents[2]
NAME = "fairlane-trial"
BUILD_S, COMMAND_S = 900, 180


class TrialFailed(Exception):
    """Something is not as it should be."""


class Project:
    """Ports are free ones of this machine; volumes and network are the project's own, and go with `down`."""

    def __init__(self) -> None:
        self.ports = {name: _free_port() for name in ("REDIS_PORT", "FLOWER_PORT", "SIMULATOR_PORT")}
        ports = {name: str(port) for name, port in self.ports.items()}
        self._environment = {**process_environment(), **ports, "COMPOSE_PROJECT_NAME": NAME}
        self._command = _compose()

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self.ports['REDIS_PORT']}/0"

    @property
    def provider_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['SIMULATOR_PORT']}"

    def compose(self, *arguments: str, timeout: int = COMMAND_S) -> str:
        """Output of a command on this project. Raises `TrialFailed`."""
        return _run([*self._command, "--profile", "simulate", *arguments], self._environment, timeout)

    def docker(self, *arguments: str) -> str:
        return _run(["docker", *arguments], self._environment, COMMAND_S)

    def up(self, *, workers: int, build: bool = False) -> None:
        options = ["--build"] if build else ["--no-recreate"]
        self.compose("up", "-d", *options, "--scale", f"worker={workers}", timeout=BUILD_S)

    def down(self) -> None:
        """Take everything away, the volumes too."""
        self.compose("down", "-v", "--remove-orphans")

    def containers(self, service: str) -> list[str]:
        """Ids of a service's containers, those that are stopped as well."""
        label = f"label=com.docker.compose.project={NAME}"
        chosen = ["--filter", label, "--filter", f"label=com.docker.compose.service={service}"]
        return self.docker("ps", "-aq", "--no-trunc", *chosen).split()

    def unhealthy(self) -> list[str]:
        """Containers that run and are not healthy, by name."""
        found = self.docker("ps", "-q", "--filter", f"label=com.docker.compose.project={NAME}").split()
        states = json.loads(self.docker("inspect", *found)) if found else []
        return [
            state["Name"].lstrip("/") for state in states if state["State"]["Health"]["Status"] != "healthy"
        ]

    def restarts(self, container: str) -> int:
        """How often the engine has started a container again by itself."""
        return int(self.docker("inspect", "-f", "{{.RestartCount}}", container))

    def leader(self) -> str:
        """The container that leads: a scheduler is called after its host, and that is its container's id."""
        name = self.compose("exec", "-T", "redis", "redis-cli", "hget", Keys("main").leader, "id").strip()
        for container in self.containers("scheduler"):
            if container[:12] in name:
                return container
        raise TrialFailed(f"no scheduler is {name!r}")

    def fairlane(self, *arguments: str) -> str:
        """Output of a command of ours, in a scheduler's container."""
        running = self.containers("scheduler")
        states = {each: self.docker("inspect", "-f", "{{.State.Running}}", each).strip() for each in running}
        alive = next(each for each, state in states.items() if state == "true")
        return self.docker("exec", alive, "fairlane", *arguments)

    def answers(self, container: str, port: int, path: str) -> str:
        """What a container answers to itself over HTTP."""
        ask = f"from urllib.request import urlopen; print(urlopen('http://127.0.0.1:{port}{path}').read().decode())"
        return self.docker("exec", container, "python", "-c", ask)


def _compose() -> list[str]:
    """Compose 2, or Compose 1. Raises `TrialFailed` where there is no engine."""
    if shutil.which("docker") is None:
        raise TrialFailed("docker is not installed")
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)  # noqa: S607
    if plugin.returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        raise TrialFailed("neither `docker compose` nor `docker-compose` is installed")
    return ["docker-compose"]


def _run(command: list[str], environment: Mapping[str, str], timeout: int) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise TrialFailed(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
