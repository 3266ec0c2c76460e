"""Every error survives pickling and copying: a pool of processes dies of one that does not."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251 - as pools of processes do
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane.config.problems import ConfigurationWarning
from fairlane.core import errors

TREE = "fairlane.core.errors"
SAMPLES: dict[str, tuple[Any, ...]] = {
    "ConfigurationError": ("redis.url", "x", "is no URL", "Give one."),
    "SubmissionError": ("dataset", {"q": [1]}, "is wrong", "Mend it."),
    "DatasetChanged": ("s3://a", 1, 2),
    "BatchFileError": (Path("a.jsonl"), [(1, "is no JSON")]),
    "UnsupportedError": (("one", "two"),),
    "TemplateError": ("prompt", "is broken", "q"),
    "RunNotFound": ("r1",),
    "RunArchived": ("r1",),
    "RunLost": ("r1", "its rows"),
    "ResultsLost": ("r1", "its results"),
    "AmbiguousRun": ("r", ["r1", "r2"]),
    "InboxFull": ("search", 7, 5),
    "RunEnded": ("r1", "cancelled"),
    "LaneNotFound": ("sim:fast", ["sim:slow"]),
    "WorkerNotFound": ("w1", ["w2"]),
    "TargetNotFound": ("x", ["y"], "detail"),
    "RunTimeout": ("r1", 1.5),
    "StoreUnavailable": ("redis://h", "refused"),
    "OldSchema": ("redis://h", "default", "fl:", "9"),
    "StoreRefuses": ("redis://h", "is full", "Make room."),
    "CallFailed": ("r1/0", "timed out", 3),
    "ArchiveUnavailable": ("no route",),
    "ArchiveTooNew": (9, 8),
    "MissingExtra": ("Parquet", "pyarrow", "parquet"),
    "NoTerminal": (),
    "ScriptError": ("job_start", "bad"),
    "LocalStackError": ("redis", "did not start", "redis.log"),
    "FunctionNotFound": ("no f",),
    "CutOff": ("a template", "took 3 s", "seconds"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "SubmissionError": {"row": 3},
    "BatchFileError": {"more": True},
    "FunctionNotFound": {"claimed": False},
    "RateLimited": {"retry_after": timedelta(seconds=2)},
}


def kinds() -> list[type[BaseException]]:
    """All errors of the tree, and what else is public."""
    found: list[type[BaseException]] = [errors.FairlaneError]
    for kind in found:
        found += [each for each in kind.__subclasses__() if each not in found and each.__module__ == TREE]
    public = [getattr(fairlane, name) for name in fairlane.__all__]
    other = [each for each in public if isinstance(each, type) and issubclass(each, BaseException)]
    return list(dict.fromkeys([*found, *other, ConfigurationWarning]))


def made(kind: type[BaseException]) -> BaseException:
    named = next((each.__name__ for each in kind.__mro__ if each.__name__ in SAMPLES), "")
    error = kind(*SAMPLES.get(named, ("a message",)), **OPTIONS.get(kind.__name__, {}))
    error.add_note("a note")
    return error


WAYS: list[Callable[[Any], Any]] = [
    *(lambda e, protocol=n: pickle.loads(pickle.dumps(e, protocol)) for n in range(2, 6)),  # noqa: S301
    copy.copy,
    copy.deepcopy,
]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("way", WAYS, ids=["2", "3", "4", "5", "copy", "deepcopy"])
def test_an_error_keeps_its_message_attributes_and_notes(way: Any, kind: type[BaseException]) -> None:
    error = made(kind)
    taken = way(way(error))
    assert type(taken) is kind
    assert str(taken) == str(error)
    assert taken.args == error.args
    assert taken.__dict__ == error.__dict__
    assert taken.__notes__ == ["a note"]
    assert getattr(taken, "msg", None) == getattr(error, "msg", None)


class Hostile:
    """A value that pickles here and raises where it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def values() -> Iterator[Any]:
    yield (each for each in ())
    yield threading.Lock()
    yield lambda: None
    yield Hostile()
    yield {"deep": [threading.Lock()]}


@pytest.mark.parametrize("value", list(values()), ids=lambda value: type(value).__name__)
def test_a_value_that_does_not_pickle_arrives_as_its_text(value: Any) -> None:
    error = errors.SubmissionError("dataset", value, "is wrong", row=2)
    taken = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (str(taken), taken.row) == (str(error), 2)
    assert isinstance(taken.value, str)


class Mine(errors.RateLimited):
    """An error of a user's own, with other arguments."""

    def __init__(self, service: str, seconds: float) -> None:
        super().__init__(f"{service} says no", retry_after=seconds)
        self.service = service


def test_a_users_own_error_of_the_tree_survives_too() -> None:
    taken = copy.deepcopy(Mine("maps", 3))
    assert (type(taken), taken.service, taken.retry_after, str(taken)) == (Mine, "maps", 3, "maps says no")


PROGRAM = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from fairlane import SubmissionError

def job(n):
    raise SubmissionError("dataset", (n for n in ()), "is wrong", "Mend it.", row=n)

if __name__ == "__main__":
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool, context.Pool(1) as other:
        for ask in (lambda: pool.submit(job, 7).result(30), lambda: other.apply_async(job, (7,)).get(30)):
            try:
                ask()
            except SubmissionError as error:
                print(error.row, error.remedy)
"""


def test_pools_of_processes_return_the_error(tmp_path: Path) -> None:
    program = tmp_path / "pools.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.splitlines() == ["7 Mend it.", "7 Mend it."], done.stderr
