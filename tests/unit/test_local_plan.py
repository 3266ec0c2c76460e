"""The command lines and the environment of a local stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.config.connections.presets import PROTOCOLS
from fairlane.config.loader import load_settings
from fairlane.local.plan import StackPlan, connection_variables


def test_every_role_is_reported_where_redis_is_and_which_file_to_read(tmp_path: Path) -> None:
    plan = StackPlan(
        data_dir=tmp_path, config=tmp_path / "fairlane.toml", env={"FAIRLANE_LOG__LEVEL": "debug"}
    )
    assert plan.environment("redis://127.0.0.1:7000/0", None) == {
        "PYTHONUNBUFFERED": "1",
        "FAIRLANE_LOG__LEVEL": "debug",
        "FAIRLANE_CONFIG": str(tmp_path / "fairlane.toml"),
        "FAIRLANE_REDIS__URL": "redis://127.0.0.1:7000/0",
    }


def test_the_roles_read_a_connection_to_the_simulated_provider(tmp_path: Path) -> None:
    plan = StackPlan(data_dir=tmp_path, simulate=True)
    settings = load_settings(environ=plan.environment("redis://x:1/0", "http://127.0.0.1:8100/v1"))
    connection = settings.connections["sim"]
    assert (connection.protocol, connection.base_url) == ("openai", "http://127.0.0.1:8100/v1")


def test_a_connection_of_the_file_is_led_to_the_simulated_provider_whatever_its_name(tmp_path: Path) -> None:
    config = tmp_path / "fairlane.toml"
    config.write_text(
        '[connections."sim-claude.2"]\nprotocol = "anthropic"\nbase_url = "http://elsewhere/v1"\n'
    )
    variables = connection_variables("sim-claude.2", "anthropic", "http://127.0.0.1:8100/v1")
    settings = load_settings(config, environ=variables)
    assert [c.base_url for c in settings.connections.values()] == ["http://127.0.0.1:8100/v1"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connection_of_every_protocol_can_lead_to_the_simulated_provider(protocol: str) -> None:
    plan = StackPlan(data_dir=Path("x"), simulated={"sim": protocol})
    section = "FAIRLANE_CONNECTIONS__SIM__ENDPOINT__"
    endpoint = {f"{section}OUTPUT": "text", f"{section}METHOD": "GET"} if protocol == "http" else {}
    settings = load_settings(environ=plan.environment("redis://x:1/0", "http://127.0.0.1:8100/v1") | endpoint)
    assert settings.connections["sim"].base_url.startswith("http://127.0.0.1:8100")
    assert settings.connections["sim"].scheme not in ("sigv4", "google")


def test_a_worker_gets_its_name_its_ready_file_and_its_slots(tmp_path: Path) -> None:
    command = StackPlan(data_dir=tmp_path, slots=7).worker_command("worker-2")
    options = dict(zip(command[-6::2], command[-5::2], strict=True))
    ready_file = str(tmp_path / "run" / "worker-2.ready")
    assert command[-7] == "fairlane_workers"
    assert options == {"--name": "worker-2", "--ready-file": ready_file, "--slots": "7"}


def test_paths_are_absolute_so_that_they_hold_in_any_directory(tmp_path: Path) -> None:
    plan = StackPlan(data_dir=Path("data"), simulate_config=Path("sim.toml"))
    command = plan.simulator_command("simulator", 0)
    assert command[-1] == str(Path("sim.toml").resolve())
    assert plan.log("redis").is_absolute()
