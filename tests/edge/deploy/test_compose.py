"""docker-compose.yml and what it mounts and builds: whatever can be said without an engine."""

from __future__ import annotations

import os
import re
import shutil
import socketserver
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import typer
import yaml

from fairlane.cli.main import app
from fairlane.config.environment import child_environment
from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings
from fairlane.lab.simulator.config import SimulatorConfig

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "deploy" / "docker"
CLOSING_S = 20  # beyond its grace, for a worker to say goodbye and end its loop

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
ROLES = sorted(name for name, service in SERVICES.items() if service["image"].startswith("fairlane"))


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the check reads /proc")


def dockerfile() -> list[str]:
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    return [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def configured() -> Settings:
    given = {name: by_default(value) for name, value in SERVICES["scheduler"]["environment"].items()}
    return load_settings(DOCKER / "fairlane.toml", given)


def by_default(value: str) -> str:
    """``value`` as it is without an ``.env``: ``${REDIS_URL:-redis://redis}`` is ``redis://redis``."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def seconds(duration: str) -> int:
    assert duration.endswith("s")
    return int(duration.removesuffix("s"))


def healthy(ready: Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(DOCKER / "healthcheck.sh"), str(ready)]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)


def test_all_services_are_there() -> None:
    others = {"redis", "prometheus", "grafana"}
    assert set(SERVICES) == {*others, "scheduler", "worker", "flower", "simulator"}
    assert ROLES == ["flower", "scheduler", "simulator", "worker"]


def test_there_is_a_standby() -> None:
    assert SERVICES["scheduler"]["deploy"]["replicas"] == 2


def test_the_simulated_provider_and_monitoring_run_only_when_asked_for() -> None:
    assert {name: s["profiles"] for name, s in SERVICES.items() if "profiles" in s} == {
        "simulator": ["simulate"],
        "prometheus": ["monitoring"],
        "grafana": ["monitoring"],
    }


def test_prometheus_finds_the_services_at_the_ports_that_they_serve() -> None:
    prometheus = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    shown = {
        name: lookup["port"]
        for job in prometheus["scrape_configs"]
        for lookup in job["dns_sd_configs"]
        for name in lookup["names"]
    }
    metrics = configured().metrics
    assert metrics.host == "0.0.0.0"
    assert shown == {"scheduler": metrics.scheduler_port, "worker": metrics.worker_port}


def test_monitoring_mounts_files_that_are_there() -> None:
    for name in ("prometheus", "grafana"):
        mounts = [mount.split(":") for mount in SERVICES[name]["volumes"] if mount.startswith("./")]
        assert mounts
        assert all((ROOT / source).exists() and mode == "ro" for source, _, mode in mounts)
    rules = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    mounted = {Path(mount.split(":")[1]).name for mount in SERVICES["prometheus"]["volumes"]}
    assert set(rules["rule_files"]) <= mounted


def test_dashboards_are_where_grafana_looks_for_them() -> None:
    file = ROOT / "deploy/grafana/provisioning/dashboards/fairlane.yml"
    (provider,) = yaml.safe_load(file.read_text(encoding="utf-8"))["providers"]
    targets = {mount.split(":")[1] for mount in SERVICES["grafana"]["volumes"]}
    assert provider["options"]["path"] in targets
    assert SERVICES["grafana"]["environment"]["PROMETHEUS_URL"] == "http://prometheus:9090"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_nothing_keeps_a_service_from_being_scaled_or_listens_beyond_loopback(name: str) -> None:
    service = SERVICES[name]
    assert "container_name" not in service
    assert "hostname" not in service
    assert "network_mode" not in service
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_what_is_scaled_publishes_no_port(name: str) -> None:
    assert "ports" not in SERVICES[name]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_restarts_and_reports_its_health(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert {"test", "interval", "timeout", "retries", "start_period"} == set(service["healthcheck"])


@pytest.mark.parametrize("name", ["scheduler", "worker", "flower"])
def test_roles_wait_for_a_redis_that_answers(name: str) -> None:
    assert SERVICES[name]["depends_on"] == {"redis": {"condition": "service_healthy"}}


def test_redis_appends_to_a_file_in_a_volume_and_evicts_nothing() -> None:
    redis = SERVICES["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--lazyfree-lazy-expire"], options["--hash-max-ziplist-entries"]) == ("yes", "16")
    assert redis["volumes"] == [f"redis-data:{options['--dir']}"]
    assert "redis-data" in COMPOSE["volumes"]


@pytest.mark.parametrize("name", ROLES)
def test_a_role_has_no_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert not service.get("privileged", False)
    assert "user" not in service, "the image's own user holds"


def test_only_the_simulator_has_the_simulated_provider() -> None:
    targets = {name: (SERVICES[name]["image"], SERVICES[name]["build"]["target"]) for name in ROLES}
    assert targets.pop("simulator") == ("fairlane-simulator", "simulator")
    assert set(targets.values()) == {("fairlane", "production")}
    assert any(line.startswith("RUN ") and " rm -r lab local" in line for line in dockerfile())
    assert dockerfile()[-1].startswith("COPY --from=trimmed "), "without a target it is production's"


def test_the_image_runs_as_a_fixed_user_that_is_not_root() -> None:
    final = dockerfile()[::-1]
    user = next(line for line in final if line.startswith("USER "))
    assert re.fullmatch(r"USER [1-9]\d*:[1-9]\d*", user)
    uid = user.split()[1].split(":")[0]
    mounts = {mount for name in ROLES for mount in SERVICES[name]["tmpfs"] if "uid=" in mount}
    assert all(f"uid={uid}," in mount for mount in mounts)


def test_the_image_holds_no_key_and_copies_only_what_exists() -> None:
    for line in dockerfile():
        assert not re.match(r"(ARG|ENV)\b.*(KEY|TOKEN|SECRET|PASSWORD)", line)
        if line.startswith("COPY ") and "--from" not in line:
            assert all((ROOT / source).exists() for source in line.split()[1:-1])


def test_the_image_can_have_extras_and_other_packages() -> None:
    """The file system of a container is read-only: what an archive or traces need is there from the build."""
    lines = dockerfile()
    installed = next(number for number, line in enumerate(lines) if line == "RUN pip install --no-deps .")
    added = next(number for number, line in enumerate(lines) if "$PACKAGES" in line)
    trimmed = next(number for number, line in enumerate(lines) if line.endswith(" AS trimmed"))
    assert installed < added < trimmed
    assert "ARG PACKAGES" in lines[installed:added], "an ARG counts from its line on"
    for name in ROLES:
        assert "PACKAGES" in SERVICES[name]["build"]["args"], name


def test_the_build_sees_what_the_dockerfile_copies_and_nothing_else() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert next(rule for rule in rules if not rule.startswith("#")) == "*"
    copied = {
        source
        for line in dockerfile()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied


@pytest.mark.parametrize("name", ROLES)
def test_a_command_is_one_that_fairlane_takes(name: str) -> None:
    role, *arguments = SERVICES[name]["command"]
    group = typer.main.get_command(app)
    with group.make_context("fairlane", [role], resilient_parsing=True) as context:
        command = group.get_command(context, role)  # type: ignore[attr-defined]
        assert command is not None
        options = {option for parameter in command.params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options


@pytest.mark.parametrize("name", ["scheduler", "worker", "simulator"])
def test_the_ready_file_is_gone_with_its_container(name: str) -> None:
    service = SERVICES[name]
    ready = Path(service["command"][service["command"].index("--ready-file") + 1])
    assert service["healthcheck"]["test"] == ["CMD", "fairlane-healthcheck"]
    assert f"ready=${{1:-{ready}}}" in (DOCKER / "healthcheck.sh").read_text(encoding="utf-8")
    assert str(ready.parent) in {mount.split(":")[0] for mount in service["tmpfs"]}


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.mark.parametrize("name", ["flower", "prometheus", "grafana"])
def test_a_health_check_asks_no_proxy(name: str) -> None:
    kind, *command = SERVICES[name]["healthcheck"]["test"]
    if kind == "CMD-SHELL":
        command = ["sh", "-c", *command]
        if shutil.which("wget") is None:
            pytest.skip("there is no wget here")
    address = re.search(r"127\.0\.0\.1:\d+", command[-1])
    assert address is not None
    with socketserver.TCPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        command[-1] = command[-1].replace(address[0], f"127.0.0.1:{server.server_address[1]}")
        command[0] = command[0].replace("python", sys.executable)
        shown = child_environment({"http_proxy": "http://127.0.0.1:9"})
        subprocess.run(command, env=shown, check=True, timeout=30)
        server.shutdown()


def test_provider_keys_reach_the_workers_alone() -> None:
    keys = {
        name: {key: value for key, value in service.get("environment", {}).items() if "KEY" in key}
        for name, service in SERVICES.items()
    }
    assert keys.pop("worker") == {"OPENAI_API_KEY": None, "ANTHROPIC_API_KEY": None}
    assert not any(keys.values())
    assert not any("env_file" in service for service in SERVICES.values())


def test_a_worker_has_longer_to_stop_than_it_gives_its_calls() -> None:
    grace = configured().worker.shutdown_grace_seconds
    assert seconds(SERVICES["worker"]["stop_grace_period"]) >= grace + CLOSING_S


def test_the_mounted_settings_lead_to_the_services() -> None:
    settings = configured()
    assert settings.redis.url == "redis://redis:6379/0"
    command = SERVICES["simulator"]["command"]
    port = command[command.index("--port") + 1]
    assert settings.connections["sim"].base_url == f"http://simulator:{port}/v1"


def test_the_settings_stay_valid_with_the_examples_switched_on(tmp_path: Path) -> None:
    text = (DOCKER / "fairlane.toml").read_text(encoding="utf-8")
    file = tmp_path / "fairlane.toml"
    file.write_text(re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.M), encoding="utf-8")
    connections = load_settings(file, {}).connections
    assert set(connections) == {"sim", "openai", "anthropic"}
    wanted = {connection.api_key_env for connection in connections.values()} - {None}
    assert wanted <= set(SERVICES["worker"]["environment"])


def test_lanes_state_what_the_simulated_provider_allows() -> None:
    models = SimulatorConfig.from_toml(DOCKER / "simulator.toml").models
    lanes = configured().lanes
    assert {f"sim:{name}": model.requests_per_minute for name, model in models.items()} == {
        lane: limits.requests_per_minute for lane, limits in lanes.items()
    }


def test_the_example_environment_names_every_variable_and_no_other() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    asked = set(re.findall(r"\$\{(\w+)", text)) | set(re.findall(r"^ +([A-Z_]+):$", text, flags=re.M))
    example = (DOCKER / ".env.example").read_text(encoding="utf-8")
    offered = set(re.findall(r"^#? ?([A-Z_]+)=", example, flags=re.M))
    assert offered - {"COMPOSE_PROJECT_NAME"} == asked


def test_the_example_environment_states_the_defaults() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]+)\}", text))
    example = (DOCKER / ".env.example").read_text(encoding="utf-8")
    offered = dict(re.findall(r"^#? ?([A-Z_]+)=(.+)$", example, flags=re.M))
    assert {name: offered[name] for name in defaults} == defaults


@needs_proc
def test_a_process_that_runs_is_healthy(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text(f'{{"pid": {os.getpid()}, "name": "worker@1"}}', encoding="utf-8")
    assert healthy(ready).returncode == 0
    ready.write_text(f'{{"url":"http://0.0.0.0:8100","pid":{os.getpid()}}}', encoding="utf-8")
    assert healthy(ready).returncode == 0


def test_a_role_that_is_not_ready_is_not_healthy(tmp_path: Path) -> None:
    assert healthy(tmp_path / "absent").returncode == 1


def test_a_ready_file_without_a_number_is_not_healthy(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("{}", encoding="utf-8")
    assert healthy(ready).returncode == 1


@needs_proc
def test_a_process_that_has_ended_is_not_healthy(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ready = tmp_path / "ready"
    ready.write_text(f'{{"pid": {ended.pid}}}', encoding="utf-8")
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert "state Z" in healthy(ready).stdout
    finally:
        ended.wait()
    assert healthy(ready).returncode == 1
