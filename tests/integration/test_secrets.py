"""A full run leaves no trace of a key, in any spelling: stored, sent, logged, shown, exported or dumped."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from pydantic import SecretStr

from fairlane.embedded.guard import Guard
from fairlane.embedded.ports import LOOPBACK, answers, preferred_or_free
from fairlane.embedded.processes import Process
from fairlane.evaluators.builders import exact_match, llm_judge
from fairlane.local.plan import FAIRLANE
from fairlane.testing import SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.leaks import KEY, Wiretap, echoing, spellings, stored, traces
from tests.support.wait import wait_until

CRASHES = {
    "defect-at-start": """
from fairlane_workers import command as entry, process
class Broken(process.WorkerProcess):
    def _make_app(self):
        raise RuntimeError(f"defect: {vars(self)!r} {vars(self.engine)!r} {self._secrets!s}")
entry.WorkerProcess = Broken
raise SystemExit(entry.main(["--name", "defect-at-start"]))
""",
    "defect-in-a-call": """
from fairlane_workers import command as entry, engine
held = engine.Engine._open
async def broken(self):
    await held(self)
    raise RuntimeError(f"defect: {self._providers!r} {self._secrets!r} {self._settings!r}")
engine.Engine._open = broken
raise SystemExit(entry.main(["--name", "defect-in-a-call"]))
""",
}


@contextmanager
def beside(deployment: Cluster, name: str, command: list[str], **env: str) -> Iterator[Process]:
    """One more process with the deployment's environment, which holds the key."""
    log, guard = deployment.directory / "data" / "logs" / f"{name}.log", Guard()
    process = Process(name, command, log=log, guard=guard, env={**deployment.stack.environment, **env})
    process.start()
    try:
        yield process
    finally:
        process.ask_to_stop()
        if not process.join(10.0):
            process.kill()
            process.join(10.0)
        guard.close()


@dataclass(frozen=True, slots=True)
class Left:
    """What a full run has left, by where it is. ``run`` is its id."""

    run: str
    places: dict[str, bytes]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    models = {"m": SimulatedModel(latency_ms=10)}
    served = SimulatorConfig(models=models, api_key=SecretStr(KEY))
    with serve_in_thread(served) as provider, echoing() as echo:
        urls = {"right": provider.base_url, "claude": provider.base_url, "echo": echo}
        config = "".join(
            f'[connections.{name}]\nprotocol = "{"anthropic" if name == "claude" else "openai"}"\n'
            f'base_url = "{url}"\napi_key_env = "{name.upper()}_API_KEY"\n'
            for name, url in urls.items()
        )
        env = {f"{name.upper()}_API_KEY": KEY for name in urls} | {"FLOWER_UNAUTHENTICATED_API": "true"}
        directory = tmp_path_factory.mktemp("secrets")
        with cluster(directory, models, config=config, env=env, workers=1) as deployment:
            yield _full_run(deployment)


def _full_run(deployment: Cluster) -> Left:
    tap = Wiretap(deployment.stack.redis_url)
    try:
        port = next(preferred_or_free(None))
        with beside(deployment, "flower", deployment.stack.plan.flower_command(port)):
            wait_until(lambda: answers(LOOPBACK, port))
            wait_until(lambda: _listens(deployment, port), interval=0.5)
            run = _everything_once(deployment)
            flower = wait_until(lambda: _flower(port, run)) or b""
        for name, program in CRASHES.items():
            with beside(deployment, name, [sys.executable, "-P", "-c", program]):
                wait_until(lambda announced=name: "defect: " in _log(deployment, announced))
        shown = b"".join(_cli(deployment, *command) for command in _commands(run))
    finally:
        announced = tap.close()
    data = deployment.directory / "data"
    return Left(
        run,
        {
            "Redis, every command and message": announced,
            "Redis, every key": stored(deployment.redis),
            "Redis, its files": _files(data, "*.aof"),
            "logs of all processes": _files(data, "*.log"),
            "Flower": flower,
            "exports": _files(deployment.directory, "export.*"),
            "the command line": shown,
            "crashes": b"".join(_log(deployment, name).encode() for name in CRASHES),
        },
    )


def _everything_once(deployment: Cluster) -> str:
    """Calls of both protocols, streamed, judged, refused and cancelled; the id of the run that completed."""
    judge = llm_judge("claude:m", "Is {{ output }} right?", choices={"yes": 1.0, "no": 0.0})
    rows = numbered(20, expected="none")
    run = deployment.client.submit(
        rows, "question {{ n }}", models=["right:m", "claude:m"], evaluators=[judge, exact_match("expected")]
    )
    with suppress(Exception):
        next(iter(run.stream()), None)
    run.wait(timeout=45.0)
    assert run.status().state == "completed"
    for suffix in ("jsonl", "csv"):
        run.export(deployment.directory / f"export.{suffix}")
    all_succeeded(deployment.client.submit(numbered(3), "again {{ n }}", model="right:m"))
    parked = deployment.client.submit(numbered(3), "question {{ n }}", model="echo:m")
    wait_until(lambda: "echo:m" in deployment.lanes.names() and deployment.lanes.view("echo:m").parked)
    parked.cancel()
    parked.wait(timeout=60.0)
    return run.id


def _listens(deployment: Cluster, port: int) -> bool:
    """Whether Flower, which asks the workers to report tasks some time after its start, hears of one."""
    all_succeeded(deployment.client.submit(numbered(1), "first", model="right:m"))
    with urlopen(f"http://{LOOPBACK}:{port}/api/tasks", timeout=20.0) as reply:
        return bool(json.load(reply))


def _flower(port: int, run: str) -> bytes | None:
    """Flower's pages and its API, once it has heard of the run's tasks."""
    paths = (
        "/api/workers?refresh=1",
        "/api/tasks?limit=1000",
        "/",
        "/workers",
        "/tasks",
        "/broker",
        "/metrics",
        "/fairlane/data/lanes",
        "/fairlane/data/runs",
        "/fairlane/data/teams",
        f"/fairlane/data/run/search/{run}",
        f"/fairlane/data/run/search/{run}/0",
        "/fairlane/data/lane/echo:m",
    )
    pages = []
    for path in paths:
        with urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=20.0) as reply:
            pages.append(reply.read())
    return b"\n".join(pages) if run.encode() in pages[1] else None


def _commands(run: str) -> list[tuple[str, ...]]:
    return [
        *(("results", run), ("status", run, "--json"), ("lanes", "show", "echo:m", "--json")),
        *(("workers", "--json"), ("audit", "--json"), ("doctor", "--json")),
    ]


def _cli(deployment: Cluster, *arguments: str) -> bytes:
    """What a command prints on both its outputs; the key is in its environment, too."""
    environment = {**deployment.stack.environment, "FAIRLANE_TEAM": "search"}
    done = subprocess.run(
        ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()), *FAIRLANE, *arguments],
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


def _log(deployment: Cluster, name: str) -> str:
    log = deployment.directory / "data" / "logs" / f"{name}.log"
    return log.read_text(errors="replace") if log.exists() else ""


def _files(folder: Path, pattern: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob(pattern)))


PLACES = (
    *("Redis, every command and message", "Redis, every key", "Redis, its files", "logs of all processes"),
    *("Flower", "exports", "the command line", "crashes"),
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.timeout(240)
def test_the_key_is_stored_nowhere_in_any_encoding(left: Left, place: str) -> None:
    assert set(PLACES) == set(left.places)
    assert not traces(left.places[place])


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("exports", "crashes")])
@pytest.mark.timeout(240)
def test_the_run_has_written_to_every_place_that_is_searched(left: Left, place: str) -> None:
    assert left.run.encode() in left.places[place]


def test_exports_and_crashes_were_made(left: Left) -> None:
    assert left.places["exports"].count(b"claude:m") >= 40
    assert left.places["crashes"].count(b"Traceback") >= len(CRASHES)
    assert left.places["crashes"].count(b"**********") >= len(CRASHES)  # the key was there, and is hidden


def test_a_refusal_that_quotes_the_key_is_kept_without_it(left: Left) -> None:
    assert b"wrong key: ***" in left.places["logs of all processes"]


def test_workers_report_their_keys_by_a_fingerprint_alone(left: Left) -> None:
    lines = [
        line for line in left.places["logs of all processes"].splitlines() if b'"credential_in_use"' in line
    ]
    announced = [json.loads(line) for line in lines]
    assert {line["connection"] for line in announced} == {"right", "claude", "echo"}
    (fingerprint,) = {line["fingerprint"] for line in announced}
    assert len(fingerprint) == 12


@pytest.mark.parametrize("name", spellings(KEY))
def test_the_search_finds_a_planted_key_in_every_place(name: str) -> None:
    assert name in traces(b"before" + spellings(KEY)[name] + b"after")


@pytest.mark.parametrize("before", [b"", b"u", b"us", b"user:"])
def test_the_search_finds_a_base64_key_next_to_any_text(before: bytes) -> None:
    assert any(each.startswith("base64") for each in traces(base64.b64encode(before + KEY.encode() + b"x")))
