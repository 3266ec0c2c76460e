"""What handles take and refuse: ids and runs alike, timeouts that are numbers, and no copies of them."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle  # noqa: TID251 - what a user's process pool does
import subprocess
import sys
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from fairlane.celery import LimitedResult
from fairlane.client.asynchronous.calls import AsyncCallHandle
from fairlane.client.asynchronous.run import AsyncRun
from fairlane.client.calls import CallHandle, CallMap
from fairlane.config.loader import load_settings
from fairlane.core.errors import RunNotFound, RunTimeout, SubmissionError
from fairlane.model.run import RunState
from tests.support.stage import Stage
from tests.unit.test_async_client import async_client, on
from tests.unit.test_client_reading import submit


def test_a_run_is_named_by_its_id_or_its_handle(stage: Stage) -> None:
    run = submit(stage, 1)
    stage.answer(run.id, 1)

    assert stage.client.run(run).id == stage.client.run(run.id).id == run.id
    assert stage.client.why(run).sentence == stage.client.why(run.id).sentence
    assert stage.client.continue_run(run).id != run.id
    assert stage.client.run(CallHandle(run)).id == run.id  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [5, None, 1.5, ["r"], b"r", object])
def test_what_names_no_run_is_refused_in_words(stage: Stage, wrong: Any) -> None:
    for ask in (stage.client.run, stage.client.why, stage.client.continue_run):
        with pytest.raises(SubmissionError, match="is no run") as caught:
            ask(wrong)
        assert caught.value.field == "run"


def test_a_comparison_asks_for_handles(stage: Stage) -> None:
    run = submit(stage, 1)
    stage.answer(run.id, 1)
    with pytest.raises(SubmissionError, match=r"client\.run"):
        run.compare(run.id)
    with pytest.raises(RunNotFound):
        stage.client.run("no run")


def test_an_async_client_takes_its_own_handles(stage: Stage) -> None:
    async def body(client: Any) -> bool:
        run = await client.submit([{"question": 1}], "{{ question }}", model="sim:fast")
        stage.admit()
        with pytest.raises(SubmissionError, match=r"client\.run"):
            await run.compare(run.id)
        with pytest.raises(SubmissionError, match="is no run"):
            await client.run(5)
        return (await client.run(run)).id == run.id and bool(await client.why(run))

    assert on(stage, body)


@pytest.mark.parametrize("wrong", ["3", timedelta(seconds=3), math.nan, np.float64("nan"), True, [3]])
def test_a_timeout_that_is_no_number_is_refused_at_once(stage: Stage, wrong: Any) -> None:
    run = submit(stage, 1)
    stage.answer(run.id, 1)

    with pytest.raises(SubmissionError, match="is no time to wait") as caught:
        run.wait(wrong)
    assert caught.value.field == "timeout"


def test_a_timeout_is_also_the_first_argument(stage: Stage) -> None:
    run = submit(stage, 1)
    for timeout in (0, 0.5, np.float32(1), np.int64(2), -1):
        with pytest.raises(RunTimeout):
            run.wait(timeout)
    stage.answer(run.id, 1)
    assert run.wait(math.inf).state is RunState.COMPLETED


def test_what_holds_connections_is_neither_pickled_nor_copied(stage: Stage) -> None:
    run, client = submit(stage, 1), async_client(stage)
    threads = client._threads
    handles: list[Any] = [stage.client, run, CallHandle(run), CallMap(run), LimitedResult(run), client]
    handles += [AsyncRun(run, threads), AsyncCallHandle(CallHandle(run), threads)]
    for handle in handles:
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"a {type(handle).__name__} holds connections.*run.id|id"):
                leave(handle)
    asyncio.run(client.close())


def test_a_client_shows_its_team_and_no_password(stage: Stage) -> None:
    assert repr(stage.client).startswith("<Client of team search at redis://")


@pytest.mark.parametrize(
    ("given", "modules"),
    [
        ("mods, more.fns", ("mods", "more.fns")),
        ('["mods"]', ("mods",)),
        (' ["mods", "more.fns"] ', ("mods", "more.fns")),
        ("[]", ()),
    ],
)
def test_a_list_in_the_environment_may_be_json(
    monkeypatch: pytest.MonkeyPatch, given: str, modules: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FAIRLANE_WORKER__MODULES", given)
    assert load_settings().worker.modules == modules


BARE = """
import importlib.metadata as metadata

def missing(name):
    raise metadata.PackageNotFoundError(name)

metadata.version = missing
from fairlane import Client, __version__
print(__version__)
"""


def test_code_without_its_distribution_has_a_version() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("0+unknown\n", 0), done.stderr
