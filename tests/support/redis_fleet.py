"""Groups of Redis servers: a primary with a replica and Sentinels, or a cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from fairlane.embedded.guard import Guard
from fairlane.embedded.ports import LOOPBACK, answers, free_ports
from fairlane.embedded.processes import Process, stop_all
from fairlane.embedded.servers import find_server
from fairlane.store.keys import Keys
from tests.support.wait import wait_until

SERVICE = "mymaster"
DOWN_MS = 1000
READY_S = 30.0
SLOTS = 16_384
MOVED_AT_ONCE = 10


@dataclass(slots=True)
class Fleet:
    """``url`` is Fairlane's setting; ``servers`` are those with data, by port, ``sentinels`` the others."""

    url: str
    servers: dict[int, Process]
    home: Keys
    sentinels: tuple[int, ...] = ()

    def client(self, port: int) -> Redis:
        return Redis(host=LOOPBACK, port=port, socket_timeout=5.0)

    def primary(self) -> int:
        """The port of the running server that has Fairlane's keys and accepts writes."""
        return wait_until(lambda: self._primary() or 0, timeout=READY_S)

    def _primary(self) -> int | None:
        for port, process in self.servers.items():
            if process.is_running:
                try:
                    with self.client(port) as server:
                        server.exists(self.home.catalog)
                        if server.execute_command("ROLE")[0] == b"master":
                            return port
                except RedisError:
                    continue
        return None

    def kill_primary(self) -> int:
        """Kill that server; returns its port."""
        port = self.primary()
        self.servers[port].kill()
        self.servers[port].join(READY_S)
        return port

    def stop_primary(self) -> int:
        """Stop that server, and return its port once Sentinels name another one."""
        port = self.primary()
        self.servers[port].kill(signal.SIGSTOP)
        wait_until(lambda: port not in self.named() and len(self.named()) == 1, timeout=READY_S)
        return port

    def demoted(self, port: int) -> None:
        """Return once Sentinels have made that server a replica, and it has copied the primary."""
        with self.client(port) as server:
            wait_until(lambda: _has_copied(server), timeout=READY_S)

    def promoted(self) -> int:
        """The port of the primary, once all Sentinels agree that it is: they may demote another one."""
        return wait_until(lambda: self._agreed(self._primary() or 0), timeout=READY_S)

    def _agreed(self, primary: int) -> int:
        return primary if self.named() == {primary} else 0

    def named(self) -> set[int]:
        """The ports that Sentinels name as the primary's."""
        found = set[int]()
        for sentinel in self.sentinels:
            with self.client(sentinel) as asked:
                _, port = asked.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                found.add(int(port))
        return found

    def replica(self) -> int:
        """The port of the running server that is not the primary."""
        primary = self.primary()
        return next(port for port in self.servers if port != primary)

    def restore(self) -> None:
        """Start the server that is down, and return once it has copied the primary."""
        primary, replica = self.promoted(), self.replica()
        if not self.servers[replica].is_running:
            self.servers[replica].start()
            self.servers[replica].wait_ready(READY_S, probe=lambda: answers(LOOPBACK, replica))
        wait_until(lambda: self._copies(replica, primary), timeout=READY_S)

    def _copies(self, replica: int, primary: int) -> bool:
        """Whether it has copied the primary. It is told so at once: Sentinels may take ten seconds."""
        try:
            with self.client(replica) as server:
                shown = server.info("replication")
                if (shown["role"], shown.get("master_port")) != ("slave", primary):
                    server.replicaof(LOOPBACK, primary)
                return bool(shown.get("master_link_status") == "up")
        except RedisError:
            return False

    def move_slot(self, to: int | None = None) -> None:
        """Move Fairlane's keys to another node of the cluster, key by key, as an operator does."""
        source = self.primary()
        target = to or next(port for port in self.servers if port != source and self._is_master(port))
        with self.client(source) as giver, self.client(target) as taker:
            slot = giver.execute_command("CLUSTER", "KEYSLOT", self.home.catalog)
            giving, taking = (node.execute_command("CLUSTER", "MYID").decode() for node in (giver, taker))
            taker.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", giving)
            giver.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", taking)
            while keys := giver.execute_command("CLUSTER", "GETKEYSINSLOT", slot, MOVED_AT_ONCE):
                giver.execute_command("MIGRATE", LOOPBACK, target, "", 0, 5000, "KEYS", *keys)
            for node in (taker, giver):
                node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", taking)

    def _is_master(self, port: int) -> bool:
        with self.client(port) as server:
            return bool(server.execute_command("ROLE")[0] == b"master")


@contextmanager
def watched_by_sentinels(
    directory: Path,
    *,
    deployment: str = "main",
    failover_ms: int = 5000,
    guarded: bool = False,
    replicas: int = 1,
) -> Iterator[Fleet]:
    """A primary, its replicas, and three Sentinels with a quorum of two.

    ``guarded``: a primary that no replica follows refuses writes, so that of two primaries one is useless.
    """
    with Guard() as guard:
        ports = _ports(4 + replicas)
        (first, *copies), watching = ports[:-3], ports[-3:]
        further = _GUARDED if guarded else ()
        servers = {port: _server(directory, port, guard, *further) for port in (first, *copies)}
        sentinels = [_sentinel(directory, port, first, guard, failover_ms) for port in watching]
        everything = [*servers.values(), *sentinels]
        try:
            _start(servers)
            for copy in copies:
                _follow(copy, first)
            for sentinel in sentinels:
                sentinel.start()
            wait_until(lambda: all(_sees_everything(port, replicas) for port in watching), timeout=READY_S)
            nodes = ",".join(f"{LOOPBACK}:{port}" for port in watching)
            yield Fleet(f"redis+sentinel://{nodes}/{SERVICE}/0", servers, Keys(deployment), tuple(watching))
        finally:
            stop_all(everything)


@contextmanager
def clustered(directory: Path, *, deployment: str = "main") -> Iterator[Fleet]:
    """Three nodes with a third of the slots each, and a replica of the node that has Fairlane's keys."""
    with Guard() as guard:
        ports = _ports(4)
        servers = {
            port: _server(directory, port, guard, *_as_node(bus))
            for port, bus in zip(ports, _ports(4), strict=True)
        }
        try:
            _start(servers)
            owners, spare = ports[:3], ports[3]
            for number, port in enumerate(owners):
                with Redis(host=LOOPBACK, port=port) as node:
                    ours = range(SLOTS * number // 3, SLOTS * (number + 1) // 3)
                    node.execute_command("CLUSTER", "ADDSLOTS", *ours)
            for port in ports[1:]:
                with Redis(host=LOOPBACK, port=port) as node:
                    node.execute_command("CLUSTER", "MEET", LOOPBACK, ports[0], _bus_of(servers[ports[0]]))
            wait_until(lambda: all(_knows(port, len(ports)) for port in ports), timeout=READY_S)
            nodes = ",".join(f"{LOOPBACK}:{port}" for port in owners)
            fleet = Fleet(f"redis+cluster://{nodes}", servers, Keys(deployment))
            with fleet.client(fleet.primary()) as owner, fleet.client(spare) as replica:
                name = owner.execute_command("CLUSTER", "MYID").decode()
                wait_until(lambda: _replicates(replica, name), timeout=READY_S)
                wait_until(lambda: owner.info("replication")["connected_slaves"] == 1, timeout=READY_S)
            yield fleet
        finally:
            stop_all(list(servers.values()))


_SYNC_AT_ONCE = (
    "--repl-diskless-sync-delay",
    "0",
)  # by default, a primary waits five seconds before it copies its data to a replica


_GUARDED = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")


def _ports(count: int) -> list[int]:
    found: set[int] = set()
    for port in free_ports():
        found.add(port)
        if len(found) == count:
            break
    return sorted(found)


def _server(directory: Path, port: int, guard: Guard, *further: str) -> Process:
    home = directory / str(port)
    home.mkdir()
    command = find_server().command_line(home, port=port, socket=None)
    return Process(
        f"redis-{port}", [*command, *_SYNC_AT_ONCE, *further], log=home / "server.log", guard=guard
    )


def _as_node(bus: int) -> list[str]:
    return [
        *("--cluster-enabled", "yes", "--cluster-port", str(bus)),
        *("--cluster-node-timeout", str(DOWN_MS), "--cluster-replica-validity-factor", "0"),
    ]


def _bus_of(node: Process) -> str:
    return node.argv[node.argv.index("--cluster-port") + 1]


def _sentinel(directory: Path, port: int, primary: int, guard: Guard, failover_ms: int) -> Process:
    home = directory / f"sentinel-{port}"
    home.mkdir()
    file = home / "sentinel.conf"
    file.write_text(
        f"port {port}\nbind {LOOPBACK}\ndir {home}\n"
        f"sentinel monitor {SERVICE} {LOOPBACK} {primary} 2\n"
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_MS}\n"
        f"sentinel failover-timeout {SERVICE} {failover_ms}\n"
    )
    command = [*find_server().command, str(file), "--sentinel"]
    return Process(f"sentinel-{port}", command, log=home / "sentinel.log", guard=guard)


def _start(servers: dict[int, Process]) -> None:
    for process in servers.values():
        process.start()
    for port, process in servers.items():
        process.wait_ready(READY_S, probe=lambda port=port: answers(LOOPBACK, port))  # type: ignore[misc]


def _follow(copy: int, primary: int) -> None:
    with Redis(host=LOOPBACK, port=copy) as replica:
        replica.replicaof(LOOPBACK, primary)
        wait_until(lambda: _has_copied(replica), timeout=READY_S)


def _has_copied(replica: Redis) -> bool:
    with suppress(RedisError):
        return bool(replica.info("replication").get("master_link_status") == "up")
    return False


def _sees_everything(sentinel: int, replicas: int) -> bool:
    """Whether a Sentinel knows the replicas and both other Sentinels, as a failover requires."""
    try:
        with Redis(host=LOOPBACK, port=sentinel, decode_responses=True) as asked:
            words = asked.execute_command("SENTINEL", "MASTER", SERVICE)
    except RedisError:
        return False
    known = words if isinstance(words, dict) else dict(zip(words[::2], words[1::2], strict=True))
    return int(known["num-slaves"]) == replicas and int(known["num-other-sentinels"]) == 2


def _knows(port: int, count: int) -> bool:
    with Redis(host=LOOPBACK, port=port, decode_responses=True) as node:
        shown = node.execute_command("CLUSTER", "INFO")
    shown = shown if isinstance(shown, dict) else dict(line.split(":") for line in shown.split())
    return shown["cluster_state"] == "ok" and int(shown["cluster_known_nodes"]) == count


def _replicates(node: Redis, owner: str) -> bool:
    try:
        node.execute_command("CLUSTER", "REPLICATE", owner)
    except RedisError:
        return False
    return True
