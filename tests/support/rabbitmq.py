"""A RabbitMQ server for tests: one node on loopback, in its own directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fairlane.config.environment import child_environment
from fairlane.embedded.guard import Guard
from fairlane.embedded.ports import LOOPBACK, answers, free_ports
from fairlane.embedded.processes import Process
from tests.support.tls import Certificates
from tests.support.tools import lacking

SCRIPTS = Path("/usr/lib/rabbitmq/bin")
INSTALLING = (
    ("apt-get", "update", "-qq"),
    ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "rabbitmq-server"),
)
USER = "guest:guest"  # RabbitMQ's default user, allowed only from this machine
INSTALL_S = 240.0
START_S = 120.0
STOP_S = 30.0


@dataclass(slots=True)
class RabbitMQ:
    """``url`` and the queues' messages survive `kill` and `start`. ``tls_url`` is the same over TLS."""

    url: str
    tls_url: str
    ca: Path
    _process: Process
    _environment: dict[str, str]
    port: int

    def url_at(self, port: int) -> str:
        """The same server behind a port that leads to its own."""
        return f"amqp://{USER}@{LOOPBACK}:{port}//"

    def start(self) -> None:
        """Return once it accepts connections."""
        self._process.start()
        self._process.wait_ready(START_S, probe=lambda: answers(LOOPBACK, self.port))

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.join(STOP_S)

    def signal(self, number: int) -> None:
        """Send its process a signal."""
        os.kill(self._process.pid, number)

    def stop(self) -> None:
        """End it as its operator does."""
        self._process.stop(STOP_S)

    def control(self, *command: str) -> str:
        """The output of a ``rabbitmqctl`` command."""
        environment = child_environment(self._environment)
        asked = [str(SCRIPTS / "rabbitmqctl"), "--quiet", *command]
        return subprocess.run(asked, env=environment, check=True, capture_output=True, text=True).stdout

    def queues(self) -> dict[str, str]:
        """The type of every queue, by name."""
        listed = self.control("list_queues", "--no-table-headers", "name", "type").splitlines()
        return dict(line.split("\t") for line in listed)


@contextmanager
def rabbitmq(directory: Path) -> Iterator[RabbitMQ]:
    """Run a server during the block. Its certificate is for ``localhost``."""
    require_rabbitmq()
    names, port, peers, secure = islice(free_ports(), 4)
    environment = _environment(directory, names, port, peers)
    certificates = Certificates(directory)
    certificate, key = certificates.issue("server")
    (directory / "rabbitmq.conf").write_text(
        f"listeners.ssl.1 = {LOOPBACK}:{secure}\nssl_options.cacertfile = {certificates.ca}\n"
        f"ssl_options.certfile = {certificate}\nssl_options.keyfile = {key}\n"
    )
    with Guard() as guard:
        # RabbitMQ would start this service itself, for all nodes of the machine, and never stop it.
        named = Process(
            "epmd", ["epmd", "-port", str(names)], log=directory / "epmd.log", guard=guard, env=environment
        )
        named.start()
        process = Process(
            "rabbitmq",
            [str(SCRIPTS / "rabbitmq-server")],
            log=directory / "rabbitmq.log",
            guard=guard,
            env=environment,
        )
        url, tls_url = f"amqp://{USER}@{LOOPBACK}:{port}//", f"amqps://{USER}@localhost:{secure}//"
        server = RabbitMQ(url, tls_url, certificates.ca, process, environment, port)
        try:
            named.wait_ready(START_S, probe=lambda: answers(LOOPBACK, names))
            server.start()
            yield server
        finally:
            process.stop(STOP_S)
            named.stop(STOP_S)


def require_rabbitmq() -> None:
    """Install RabbitMQ if it is missing. If that is impossible, the test fails and says how to install it."""
    if (SCRIPTS / "rabbitmq-server").exists():
        return
    said = "there is no apt-get here, or this user may not run it"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        # Without RUNLEVEL the package starts the service.
        quietly = child_environment({"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"})
        for command in INSTALLING:
            done = subprocess.run(
                command, env=quietly, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
            said = done.stderr.strip()
    if not (SCRIPTS / "rabbitmq-server").exists():
        lacking(f"these tests need RabbitMQ (`apt-get install rabbitmq-server`): {said}")


def _environment(directory: Path, names: int, port: int, peers: int) -> dict[str, str]:
    plugins = directory / "enabled_plugins"
    plugins.write_text("[].\n")
    return {
        "HOME": str(directory),  # the cookie that nodes and rabbitmqctl share
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": "fairlane@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(peers),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RUNNING_UNDER_SYSTEMD": "true",  # the server is then this process, not a child of it
    }
