"""Every example does what it says, and so do the programs of the migration guide, against one local stack."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fairlane.config.loader import load_settings
from fairlane.embedded.ports import free_ports
from tests.support.documents import ROOT, Block, blocks, coded, table
from tests.support.running_stack import run, running_stack
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow(seconds=4)

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "examples.md"
MIGRATION = ROOT / "docs" / "migration.md"
MODULE = re.compile(r"# ((?!shop)\w+\.py)\n")
"""The first line of a module of functions. Celery's tests have the shop."""

OF_WORKERS = [(name[1], block) for block in blocks(MIGRATION, "python") if (name := MODULE.match(block.text))]
PROGRAMS = [
    block
    for block in blocks(MIGRATION, "python")
    if "from fairlane import" in block.text or re.search(r"^import openai\n", block.text, re.MULTILINE)
    if not MODULE.match(block.text)
]
SIMULATED = {
    "openai:gpt-4o-mini": "sim:fast",
    "openai:gpt-4o": "sim:judge",
    "openai:gpt-4.1": "sim:large",
    "gpt-4o-mini": "fast",
}
UP = ("fairlane", "up", "--simulate-config", "simulator.toml")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What leads an example to the stack."""
    directory = tmp_path_factory.mktemp("examples")
    for name, block in OF_WORKERS:
        (directory / name).write_text(simulated(block), encoding="utf-8")
    port = str(next(free_ports()))
    shown = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": "sk-simulated",
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(directory)]),
        "FAIRLANE_WORKER__MODULES": "custom_provider,custom_evaluator,evals,sampling",
        "HOUSE_MODEL_URL": f"http://127.0.0.1:{next(free_ports())}",
    }
    # The port that the configuration names may be another stack's: tests run beside each other.
    command = [*UP, "--simulator-port", port, "--data-dir", str(directory / "data")]
    with running_stack(command, directory, workplace=EXAMPLES, environment=shown) as environment:
        yield environment


def simulated(program: Block) -> str:
    """Its text, with models of the simulated provider."""
    return re.sub(
        "|".join(f'"{model}"' for model in SIMULATED),
        lambda named: f'"{SIMULATED[named[0][1:-1]]}"',
        program.text,
    )


def example(name: str, environment: dict[str, str]) -> str:
    """What an example prints."""
    return run([sys.executable, "-W", "error", name], EXAMPLES, environment, timeout=30)


def test_the_page_names_every_example() -> None:
    named = {code for row in table(PAGE, "example", "shows") for code in coded(row["example"])}
    assert named == {path.name for path in EXAMPLES.glob("*.py")}


def test_a_notebook_compares_two_prompts(stack: dict[str, str]) -> None:
    shown = example("notebook.py", stack)

    assert "completed: 200 of 200 items" in shown
    assert shown.count("The answer is") == 4
    scores = re.findall(
        r"^(.*): (0\.\d\d) by the number, (0\.\d\d) by the judge, (\d+) tokens", shown, re.MULTILINE
    )
    (alone, found, judged, tokens), (steps, more, judged_more, more_tokens) = scores
    assert (alone, steps) == ("a number alone", "step by step")
    assert float(found) + 0.1 < float(more) < 1
    assert abs(float(found) - float(judged)) < 0.06
    assert abs(float(more) - float(judged_more)) < 0.06
    assert int(tokens) < int(more_tokens)


def test_an_evaluator_of_ones_own_scores_and_fails_by_itself(stack: dict[str, str]) -> None:
    first, second, third = example("custom_evaluator.py", stack).splitlines()

    assert "'brevity': 0." in first
    assert "'mentions': 1.0" in second
    assert "'mentions': None" in third
    assert "IndexError" in third


def test_two_teams_get_what_their_weights_say(stack: dict[str, str]) -> None:
    both, alone = re.findall(r"search (\d+), batch (\d+)", example("two_teams.py", stack))

    assert 0.57 <= int(both[0]) / (int(both[0]) + int(both[1])) <= 0.9  # 0.75, and who came first
    assert alone == ("60", "60")


def test_a_provider_of_ones_own_is_asked_again_after_it_refused(stack: dict[str, str]) -> None:
    output, books = example("custom_provider.py", stack).splitlines()

    assert output == "(KIND) IS 0 A LOT?"
    answers, refusals, counted = map(int, re.findall(r"\d+", books))
    assert answers == 20
    assert refusals == counted > 0


QUESTIONS = [{"question": f"{n}", "answer": f"{n}"} for n in range(10)]


@contextmanager
def served(program: str, stack: dict[str, str], log_file: Path) -> Iterator[httpx.Client]:
    """A client of a web application that runs meanwhile; it logs nothing."""
    port = next(free_ports())
    options = ["-W", "error", "-m", "uvicorn", program, "--port", str(port), "--log-level", "warning"]
    with log_file.open("wb") as log:
        server = subprocess.Popen([sys.executable, *options], cwd=EXAMPLES, env=stack, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as web:
            wait_until(lambda: _answers(web, server), timeout=20)
            yield web
    finally:
        server.terminate()
        server.wait(10)
    assert log_file.read_text() == ""


def test_a_web_application_submits_and_reports(stack: dict[str, str], tmp_path: Path) -> None:
    with served("web_app:app", stack, tmp_path / "web.log") as web:
        run_id = web.post("/runs", json={"rows": QUESTIONS}).raise_for_status().json()["run"]
        wait_until(lambda: web.get(f"/runs/{run_id}").json()["state"] == "completed")

        results = web.get(f"/runs/{run_id}/results").json()
        assert [(each["output"], each["scores"]["exact_match"]) for each in results] == [
            (f"{n}", 1.0) for n in range(10)
        ]
        assert web.post("/runs", json={"rows": QUESTIONS, "prompt": "{{ oops"}).status_code == 422
        assert web.get("/runs/nobody").status_code == 404
        assert web.delete(f"/runs/{run_id}").status_code == 202


def test_a_django_application_submits_and_reports(stack: dict[str, str], tmp_path: Path) -> None:
    with served("django_app:application", stack, tmp_path / "web.log") as web:
        run_id = web.post("/runs", json={"rows": QUESTIONS}).raise_for_status().json()["run"]
        wait_until(lambda: web.get(f"/runs/{run_id}").json()["state"] == "completed")

        results = web.get(f"/runs/{run_id}").json()["results"]
        assert [(each["output"], each["scores"]["exact_match"]) for each in results] == [
            (f"{n}", 1.0) for n in range(10)
        ]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_of_the_migration_guide_runs(stack: dict[str, str], tmp_path: Path, program: Block) -> None:
    (tmp_path / "questions.jsonl").write_text('{"question": "2 + 2?"}\n{"question": "3 + 4?"}\n')
    text = simulated(program)

    shown = run([sys.executable, "-W", "error", "-c", text], tmp_path, stack, timeout=30)

    assert len(shown.splitlines()) >= 1
    assert "None" not in shown
    assert "openai:" not in text


def test_the_examples_settings_are_valid_and_allow_what_they_use() -> None:
    settings = load_settings(EXAMPLES / "fairlane.toml", environ={})
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES.glob("custom_*.py")]
    used = set(re.findall(r'"(custom_\w+):\w+"', "".join(texts)))
    assert used == set(settings.worker.modules)


def _answers(web: httpx.Client, server: subprocess.Popen[bytes]) -> bool:
    assert server.poll() is None
    try:
        return not web.get("/openapi.json").is_server_error
    except httpx.TransportError:
        return False
