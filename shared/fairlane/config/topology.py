"""URLs of several Redis servers: those that Sentinels watch, or the nodes of a cluster."""

import re
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

Address: TypeAlias = tuple[str, int]

SENTINEL, CLUSTER = "+sentinel", "+cluster"
SENTINEL_PORT, NODE_PORT = 26379, 6379

ENCODED = "in a password, percent-encode # as %23, / as %2F, ? as %3F and @ as %40"

_OF_SENTINELS = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Topology:
    """Servers to ask for the primary. ``service`` is the Sentinels' name for it, ``None`` for a cluster.

    ``user`` and ``query`` belong into each server's own URL, ``sentinel`` are options for the Sentinels.
    """

    scheme: str
    nodes: tuple[Address, ...]
    service: str | None
    database: int
    user: str
    query: str
    sentinel: tuple[tuple[str, str], ...] = ()

    def server_url(self, address: Address) -> str:
        """The URL of one of its servers."""
        host, port = address
        named = f"[{host}]" if ":" in host else host
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.user}{named}:{port}/{self.database}{query}"


def split_url(url: str) -> SplitResult:
    """Like `urlsplit`, for a URL that may name several hosts: Python 3.14 takes brackets around one alone.

    Raises ``ValueError``.
    """
    scheme, mark, rest = url.partition("://")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0]
    if "," not in hosts:
        return urlsplit(url)
    return urlsplit(f"{scheme}{mark}{rest[len(hosts) :]}")._replace(netloc=hosts)


def topology_of(url: str) -> Topology | None:
    """The topology in a URL; ``None`` for a URL of one server. Raises ``ValueError``.

    ``redis+sentinel://[user:password@]host[:port][,host…]/SERVICE[/DATABASE]``,
    ``redis+cluster://[user:password@]host[:port][,host…]``, both also with ``rediss``.
    """
    scheme = url.partition("://")[0]
    if not scheme.endswith((SENTINEL, CLUSTER)):
        return None
    parts = split_url(url)
    user, _, hosts = parts.netloc.rpartition("@")
    stated = parse_qsl(parts.query)
    clustered = scheme.endswith(CLUSTER)
    service, database = _in_cluster(parts.path) if clustered else _service(parts.path)
    return Topology(
        scheme=scheme.partition("+")[0],
        nodes=tuple(_address(host, NODE_PORT if clustered else SENTINEL_PORT) for host in hosts.split(",")),
        service=service,
        database=database,
        user=f"{user}@" if user else "",
        query=urlencode([(name, value) for name, value in stated if name not in _OF_SENTINELS]),
        sentinel=tuple(
            (name.removeprefix("sentinel_"), value) for name, value in stated if name in _OF_SENTINELS
        ),
    )


def _service(path: str) -> tuple[str, int]:
    name, _, database = path.strip("/").partition("/")
    if not name:
        raise ValueError("the name under which Sentinels know the server is missing: …/mymaster")
    if not (database or "0").isdecimal():
        raise ValueError(f"a database is a number behind the service: …/mymaster/0; {ENCODED}")
    return unquote(name), int(database or 0)


def _in_cluster(path: str) -> tuple[None, int]:
    if path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has one database alone, 0")
    return None, 0


def _address(text: str, default: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("hosts are separated by commas: host:port,host:port")
    return parts.hostname, port_of(parts) or default


def port_of(parts: SplitResult) -> int | None:
    """The port of a split URL. Raises ``ValueError`` that does not quote it: it may belong to a password."""
    try:
        return parts.port
    except ValueError:
        raise ValueError(f"the port is no number up to 65535; {ENCODED}") from None
