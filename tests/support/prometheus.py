"""Prometheus and promtool for tests: from PATH, else from Debian's package, unpacked in pytest's cache."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.documents import ROOT
from tests.support.tools import lacking
from tests.support.wait import wait_until

RULES = ROOT / "deploy" / "prometheus" / "fairlane.rules.yml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
PROGRAMS = ("prometheus", "promtool")
FETCH_S = 180

_METRIC = re.compile(r"\b(?:fairlane|process)_[a-z_]+\b(?!\()")
_NOT_METRICS = re.compile(r"(?:by|on|group_left|without) \([^)]*\)|\{[^}]*\}|\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class Programs:
    prometheus: Path
    promtool: Path

    def check(self, *arguments: str | Path) -> str:
        """Run promtool and return its output; fails the test if promtool reports an error."""
        ended = _run([self.promtool, *arguments])
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def lint(self, exposition: bytes) -> None:
        """Fail the test if promtool rejects a name, unit or type of these metrics."""
        ended = subprocess.run(
            [self.promtool, "check", "metrics"],
            input=exposition,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")


def find_programs(cache: Path) -> Programs:
    """The programs from PATH or Debian's package `prometheus`. Fails the test if neither is available."""
    found = [shutil.which(program) for program in PROGRAMS]
    if all(found):
        return Programs(*(Path(str(path)) for path in found))
    unpacked = cache / "unpacked"
    if not unpacked.exists():
        problem = _fetch(unpacked)
        if problem is not None:
            lacking(
                "this test needs prometheus and promtool on PATH (apt-get install prometheus, or "
                f"https://prometheus.io/download). Fetching Debian's package failed: {problem}"
            )
    return Programs(*(unpacked / "usr" / "bin" / program for program in PROGRAMS))


def _fetch(target: Path) -> str | None:
    """Download and unpack the package, without installing or starting it. Returns the error, if any."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "there is no apt-get here"
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for command in (["apt-get", "download", "prometheus"], ["apt-get", "update"]):
            ended = _run(command, folder)
            if list(Path(folder).glob("*.deb")):
                break
        else:
            ended = _run(["apt-get", "download", "prometheus"], folder)
        packages = sorted(Path(folder).glob("*.deb"))
        if not packages:
            return ended.stderr.strip()[-500:]
        ended = _run(["dpkg-deb", "-x", packages[0].name, "unpacked"], folder)
        if ended.returncode:
            return ended.stderr.strip()[-500:]
        if not target.exists():  # another test process may have unpacked it first
            (Path(folder) / "unpacked").rename(target)
    return None


def _run(command: Sequence[str | Path], folder: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)


def metric_names(expression: str) -> set[str]:
    """The metrics of Fairlane and of processes that an expression names."""
    return set(_METRIC.findall(_NOT_METRICS.sub(" ", expression)))


def dashboard_expressions() -> dict[str, str]:
    """All expressions of all dashboards, by dashboard, panel and query letter."""
    return {
        f"{path.stem}: {panel['title']} {target['refId']}": target["expr"]
        for path in DASHBOARDS
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
        for target in panel.get("targets", ())
    }


@dataclass(frozen=True, slots=True)
class Server:
    """A running Prometheus."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current value of each series of an expression."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def alerts(self) -> set[str]:
        """The names of the firing alerts."""
        shown = self._get("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in shown if each["state"] == "firing"}

    def _get(self, what: str, **parameters: str) -> Any:
        asked = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(asked, timeout=10) as reply:  # noqa: S310 - our own, on loopback
            return json.load(reply)["data"]


@contextmanager
def serve(programs: Programs, directory: Path, config: str, port: int) -> Iterator[Server]:
    """Run Prometheus with this configuration until the block ends."""
    file = directory / "prometheus.yml"
    file.write_text(config, encoding="utf-8")
    command: list[str | Path] = [
        programs.prometheus,
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            server = Server(f"http://127.0.0.1:{port}")
            wait_until(lambda: _answers(server), timeout=30)
            yield server
        finally:
            process.terminate()
            process.wait(20)


def _answers(server: Server) -> bool:
    try:
        return bool(server.query("vector(1)"))
    except OSError:
        return False
