"""What is written of rehearsals: a table, a page, JSON and pictures; and the commands that write it."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from rich.console import Console
from typer.testing import CliRunner, Result

from fairlane.cli.main import app
from fairlane.config.environment import child_environment
from fairlane.embedded.processes import wait_until
from tests.benchmarks.control.__main__ import main
from tests.benchmarks.control.catalogue import CATALOGUE, scenarios
from tests.benchmarks.control.figures import Figures, LaneFigures, Recovery, Trial
from tests.benchmarks.control.picture import Curves, draw
from tests.benchmarks.control.report import table, write

COURSE = Curves("a lane", (0.0, 0.5), (600.0, 300.0), (600.0, 600.0), (0.2,), (500.0,), (0.1, 0.4))


def numbers(seed: int, used: float, took_s: float | None, *, met: bool) -> Figures:
    lane = LaneFigures(
        model="model",
        utilisation=used,
        rejected_share=0.002,
        calls=1000,
        admitted=998,
        rejected=2,
        calls_in_outages=0,
        cuts=3,
        fairness=None,
        recoveries=(Recovery(at_s=600, what="limit 300", took_s=took_s),),
        most_in_flight=50,
        last_pace=290.0,
    )
    return Figures(
        scenario="limit-halves",
        workers=4,
        seed=seed,
        complete=False,
        duration_s=3600,
        calls=1100,
        succeeded=1000,
        rejected=3,
        input_tokens=1,
        output_tokens=1,
        lanes=(lane,),
        bar=None,
        meets_bar=met,
    )


def shown(*measures: Figures) -> str:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as captured:
        console.print(table(measures))
    return captured.get()


def test_the_worst_of_several_seeds_is_shown() -> None:
    (line,) = shown(numbers(0, 0.97, 20, met=True), numbers(1, 0.91, 30, met=False)).splitlines()[1:]

    assert line.split() == ["limit-halves", "4", "91.0%", "0.20%", "3", "30", "s", "60.0", "min", "missed"]


def test_a_limit_not_found_again_by_one_seed_has_a_dash() -> None:
    assert "—" in shown(numbers(0, 0.97, 20, met=True), numbers(1, 0.97, None, met=True))


def test_the_page_and_the_document_hold_every_result(tmp_path: Path) -> None:
    measures = [numbers(1, 0.9, 30, met=False), numbers(0, 0.97, 20, met=True)]

    write(measures, 55, 2, ["limit-halves.png"], tmp_path)

    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (document["minutes"], document["seeds"]) == (55, 2)
    assert [Figures.model_validate(each).seed for each in document["results"]] == [0, 1]
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| limit-halves | 4 | 90.0% |" in page
    assert "(limit-halves.png)" in page


def test_a_course_is_drawn_as_a_png(tmp_path: Path) -> None:
    draw(COURSE, tmp_path / "new" / "lane.png")

    assert (tmp_path / "new" / "lane.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("minutes", [1.0, 55.0])
def test_every_scenario_of_the_catalogue_can_be_made(name: str, minutes: float) -> None:
    made = CATALOGUE[name](minutes)

    assert made.name == name
    assert Trial.model_validate_json(made.model_dump_json()) == made
    assert all(made.jobs_of(load) >= 60 for load in made.loads)


def test_the_steady_scenarios_are_played_with_several_numbers_of_workers() -> None:
    chosen = scenarios(["bucket-none", "outage"], seeds=2)

    assert [(each.name, each.workers, each.seed) for each in chosen] == [
        *(("bucket-none", workers, seed) for workers in (1, 4, 16) for seed in (0, 1)),
        ("outage", 4, 0),
        ("outage", 4, 1),
    ]
    assert {each.workers * each.slots for each in chosen} == {400}


def test_the_command_plays_a_scenario_and_writes_it_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--scenario", "five-a-minute", "--minutes", "1", "--processes", "1", "--out", str(tmp_path)]

    assert main(arguments) == 0

    assert "five-a-minute" in capsys.readouterr().out
    (result,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]
    assert (result["succeeded"], result["complete"]) == (60, True)
    assert (tmp_path / "five-a-minute.png").exists()


def rehearse(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rehearse", *arguments], env={"COLUMNS": "100"})


def test_a_run_is_rehearsed_before_it_is_paid_for(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"q": "one"}\n{"q": "two"}\n{"r": "no q"}\n', encoding="utf-8")
    arguments = ("--prompt", "{{ q }}", "--param", "max_tokens=20", "--repetitions", "5", "--rpm", "600")

    result = rehearse(str(rows), "--model", "openai:x", "--model", "openai:y", *arguments, "--json")

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {lane["model"]: lane["admitted"] for lane in found["lanes"]} == {"openai:x": 10, "openai:y": 10}
    assert (found["complete"], found["succeeded"]) == (True, 20)


def test_the_prediction_is_printed() -> None:
    result = rehearse("--jobs", "20", "--rpm", "600", "--latency", "1", "--input-tokens", "100")

    assert result.exit_code == 0, result.output
    fields = [line.rsplit(maxsplit=1) for line in result.stdout.splitlines()]
    assert ["answers", "20"] in fields
    assert ["input tokens", "2,000"] in fields


def test_a_provider_is_read_from_the_file_that_simulates_it(tmp_path: Path) -> None:
    config = tmp_path / "provider.toml"
    config.write_text("[models.fast]\nrequests_per_minute = 6000\n", encoding="utf-8")

    found = rehearse("--jobs", "20", "--model", "sim:fast", "--provider", str(config), "--json")
    missing = rehearse("--jobs", "20", "--model", "sim:slow", "--provider", str(config))

    assert json.loads(found.stdout)["succeeded"] == 20
    assert missing.exit_code == 2
    assert "models.slow" in missing.stderr
    assert "there are: fast" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--jobs", "5"], "--rpm"),
        (["--rpm", "60"], "--jobs"),
        (["--jobs", "5", "--rpm", "-3"], "--rpm: must be greater than 0 (got -3.0). Leave it out"),
        (["nowhere.jsonl", "--rpm", "60", "-m", "a:b", "--prompt", "x"], "nowhere.jsonl"),
        (["nowhere.jsonl", "--rpm", "60"], "--model"),
    ],
)
def test_a_wrong_argument_is_reported_with_its_remedy(arguments: list[str], named: str) -> None:
    result = rehearse(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--jobs", "20", "--repetitions", "3"),
        ("--jobs", "20", "--prompt", "Q: {{ q }}"),
        ("rows.jsonl", "--model", "sim:fast", "--prompt", "Q: {{ q }}", "--input-tokens", "9"),
    ],
)
def test_options_of_the_other_kind_of_work_are_refused(arguments: tuple[str, ...]) -> None:
    refused = rehearse(*arguments, "--rpm", "600")
    assert refused.exit_code == 2
    assert "leave out" in refused.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_rehearsal_with_its_server(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "fairlane.cli", "rehearse", "--jobs", "200000", "--rpm", "6000"]
    env = child_environment({"TMPDIR": str(tmp_path)})
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as process:
        assert wait_until(lambda: any(tmp_path.glob("fairlane-rehearsal-*/logs/redis.log")), 30)
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_a_rehearsal_leaves_logging_as_it_was() -> None:
    before = structlog.get_config()
    assert rehearse("--jobs", "1", "--rpm", "600").exit_code == 0
    assert structlog.get_config() == before
