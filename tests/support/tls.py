"""A real Redis server that accepts only TLS, with a new certificate authority and new certificates."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from fairlane.config.environment import child_environment
from fairlane.embedded.ports import LOOPBACK, free_ports
from tests.support.tools import lacking
from tests.support.wait import wait_until

PROGRAMS = ("redis-server", "valkey-server")
DEBIAN = "redis-tools"  # has the server under another name; tests only unpack it
WANTED = (
    "a Redis or Valkey server that is built with TLS is needed: put a `redis-server` on PATH (Debian's and "
    "Homebrew's have TLS), or let this machine reach Debian's packages"
)


@dataclass(frozen=True, slots=True)
class Program:
    """A server's program: its path, and the environment that it needs."""

    path: str
    env: Mapping[str, str]

    def has_tls(self) -> bool:
        """Whether it has TLS: started with TLS and no certificate, it complains only of the certificate."""
        asked = [self.path, "--port", "0", "--tls-port", "1"]
        try:
            ended = subprocess.run(
                asked,
                env=child_environment(self.env),
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return "tls-cert-file" in ended.stdout


def program_with_tls(cache: Path) -> Program:
    """A server on PATH, or else Debian's, which is downloaded once and unpacked below ``cache``."""
    found = [Program(path, {}) for path in map(shutil.which, PROGRAMS) if path]
    for program in found:
        if program.has_tls():
            return program
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        lacking(WANTED)
    with (cache / "lock").open("w") as lock:  # of the processes of one test run, one downloads
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpacked = _unpacked(cache)
        if not (unpacked.path and unpacked.has_tls()):
            _download(cache)
            unpacked = _unpacked(cache)
    if not (unpacked.path and unpacked.has_tls()):
        lacking(WANTED)
    return unpacked


def _unpacked(cache: Path) -> Program:
    program = next(cache.rglob("redis-server"), None)
    folders = sorted({str(library.parent) for library in cache.rglob("lib*.so*")})
    return Program(str(program or ""), {"LD_LIBRARY_PATH": ":".join(folders)})


def _download(cache: Path) -> None:
    print(f"downloading Debian's {DEBIAN} into {cache}: no server with TLS is installed here")
    archives = cache / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = ["-o", "Debug::NoLocking=1", "-o", f"Dir::Cache::archives={archives}"]
    fetch = ["apt-get", "-qq", "-y", *options, "--no-install-recommends", "--reinstall", "--download-only"]
    said = ""
    download, update = [*fetch, "install", DEBIAN], ["apt-get", "-qq", *options, "update"]
    for command in (download, update, download):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        said += ended.stdout + ended.stderr
        if any(archives.glob(f"{DEBIAN}_*.deb")):
            break
    else:
        lacking(f"{WANTED}\n{said}")
    for package in archives.glob("*.deb"):
        subprocess.run(
            [str(shutil.which("dpkg")), "-x", str(package), str(cache / "root")], check=True, timeout=60
        )
    program = next((cache / "root").rglob("redis-check-rdb"))
    shutil.copy2(program, program.with_name("redis-server"))


class Certificates:
    """A certificate authority in ``ca``, and certificates that it signed, as files with their keys."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._authority = folder, trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, host: str = "localhost", *, expired: bool = False) -> tuple[Path, Path]:
        """A certificate for a host, and its key. ``expired``: it was valid until yesterday."""
        now = datetime.now(UTC)
        ends, begins = (now - timedelta(days=1), now - timedelta(days=9)) if expired else (None, None)
        made = self._authority.issue_cert(host, not_after=ends, not_before=begins)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(key)
        return certificate, key


@dataclass(frozen=True, slots=True)
class TlsRedis:
    """A server at ``localhost`` that accepts only TLS."""

    port: int

    def url(self, **options: object) -> str:
        """Its URL with these TLS options, such as ``ssl_ca_certs=…``."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"rediss://localhost:{self.port}/0?{query}".rstrip("?")


@contextmanager
def tls_redis(
    program: Program, folder: Path, certificate: tuple[Path, Path], ca: Path, *, known_clients: bool = False
) -> Iterator[TlsRedis]:
    """A server with this certificate. ``known_clients``: clients need one of the same authority, too."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "port": 0,
        "bind": LOOPBACK,
        "dir": folder.resolve(),
        "save": "",
        "tls-cert-file": certificate[0],
        "tls-key-file": certificate[1],
        "tls-ca-cert-file": ca,
        "tls-auth-clients": "yes" if known_clients else "no",
    }
    process, port = _started(program, folder, options)
    try:
        yield TlsRedis(port)
    finally:
        process.terminate()
        process.wait()


def _started(
    program: Program, folder: Path, options: Mapping[str, object]
) -> tuple[subprocess.Popen[bytes], int]:
    """The server and its port: another one where a process has just taken the port that was free."""
    log = folder / "log"
    for port in free_ports():
        lines = [f'{name} "{value}"\n' for name, value in {**options, "tls-port": port}.items()]
        (folder / "redis.conf").write_text("".join(lines), encoding="utf-8")
        with log.open("w") as out:
            process = subprocess.Popen(
                [program.path, str(folder / "redis.conf")],
                env=child_environment(program.env),
                stdout=out,
                stderr=out,
            )
        wait_until(lambda: process.poll() is not None or "Ready to accept" in log.read_text(), timeout=20)  # noqa: B023
        if process.poll() is None:
            return process, port
        assert "already in use" in log.read_text(), log.read_text()
    raise AssertionError("no port is free")
