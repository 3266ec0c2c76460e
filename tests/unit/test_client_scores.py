"""Scores that clients compute, as other processes see them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from fairlane import scorer
from fairlane.flower.readings.run_list import RunList
from fairlane.flower.readings.run_page import RunPage
from fairlane.flower.readings.tallies import Tallies
from fairlane.model.run import RunRef
from fairlane.model.run_status import Scores
from fairlane.store.write.runs.client_scores import MOST_SCORERS
from tests.support.command_line import CommandLine

LENGTH = scorer(len, name="length", where="client")


def ended(cli: CommandLine) -> Any:
    """A run of three items, whose outputs are 8, 8 and 2 characters long, with a client's scorer."""
    rows = [{"q": n} for n in range(3)]
    run = cli.stage.client.submit(rows, "{{ q }}", model="sim:fast", evaluators=[LENGTH])
    cli.stage.admit()
    cli.stage.answer(run.id, 2)
    cli.stage.answer(run.id, 1, output="no")
    return run


def key_of(cli: CommandLine, run: str) -> str:
    return cli.stage.keys.client_scores(RunRef("search", run))


def test_a_run_shows_what_a_client_has_scored_once_it_has_read_all_records(cli: CommandLine) -> None:
    run = ended(cli)
    with cli.stage.client_of("search") as client:
        deployment = client._deployment
        tallies = Tallies(deployment)
        runs = RunList(deployment, tallies, show_text=False)
        page = RunPage(deployment, runs, tallies, show_text=False)
        assert page.of("search", run.id)["scores"] == []
        next(run.results())
        assert not client.run(run.id).status().client_scores
        run.summary()
        found = client.run(run.id).status().client_scores
        shown = page.of("search", run.id)["scores"]
    assert found == {"length": Scores(3, 0, 6.0, 2.0, 2.0, 8.0, 3)}
    assert [(each["name"], each["mean"], each["standard_error"]) for each in shown] == [("length", 6.0, 2.0)]
    assert cli.json("status", run.id)["client_scores"] == {"length": asdict(found["length"])}
    assert "6 ± 2, 3 scores of a client, 0 missing" in cli.out("status", run.id)


def test_scores_of_several_clients_are_kept_as_long_as_the_run(cli: CommandLine) -> None:
    run = ended(cli)
    list(run.results())
    list(cli.stage.client.run(run.id).with_scorers(scorer(bool, name="any", where="client")).results())
    assert list(run.status().client_scores) == ["any", "length"]
    state = cli.stage.keys.state(RunRef("search", run.id))
    assert 0 < cli.stage.redis.ttl(key_of(cli, run.id)) <= cli.stage.redis.ttl(state)


@pytest.mark.parametrize(
    "change",
    [
        {"mean": float("nan")},
        {"mean": 10**350},
        {"mean": "<b>"},
        {"count": -1},
        {"count": True},
        {"further": 1},
        {"mean": 0.5, "minimum": [1]},
    ],
)
def test_what_a_team_writes_there_by_hand_is_shown_only_if_it_is_scores(
    cli: CommandLine, change: dict[str, Any]
) -> None:
    run = ended(cli)
    good = asdict(Scores(1, 0, 0.5))
    written: dict[str, Any] = {f"s{n:03}": good for n in range(MOST_SCORERS + 5)}
    written |= {"bad": good | change, "<b>": good, "text": "x", "none": None}
    cli.stage.redis.set(key_of(cli, run.id), json.dumps(written))
    found = run.status().client_scores
    assert len(found) == MOST_SCORERS
    assert all(name.startswith("s") and each == Scores(1, 0, 0.5) for name, each in found.items())


def test_a_wrong_type_hides_no_run_and_fails_no_reader(cli: CommandLine) -> None:
    run = ended(cli)
    cli.stage.redis.hset(key_of(cli, run.id), "x", "y")
    assert not run.status().client_scores
    assert len(list(run.results())) == 3
    assert list(run.status().client_scores) == ["length"]


@pytest.mark.parametrize("text", ["", "x", "[]", "3", "[" * 10**5, '{"length":' + " " * 10**6 + "{}}"])
def test_no_text_that_a_team_writes_there_fails_a_reader(cli: CommandLine, text: str) -> None:
    run = ended(cli)
    cli.stage.redis.set(key_of(cli, run.id), text)
    assert not run.status().client_scores


def test_a_user_whose_rules_are_older_sees_the_run_without_them(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(cli)

    def refuse(*_: Any) -> bytes:
        raise NoPermissionError("this user has no permissions to run the 'getrange' command")

    monkeypatch.setattr(Redis, "getrange", refuse)
    assert not run.status().client_scores
    assert len(list(run.results())) == 3
