"""Scenarios that test how a lane detects its limit: an hour each, with limits that are not configured."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from fairlane.lab.rehearsal.scenario import Load
from fairlane.lab.simulator.config import SimulatedModel
from tests.benchmarks.control.figures import Bar, Trial

Headers = Literal["none", "retry_after", "ratelimit"]

PER_MINUTE = 600.0
MEDIAN_MS, SIGMA = 4412.0, 0.5  # lognormal with a mean of 5 s
BAR, BAR_WITH_HEADERS = Bar(utilisation=0.95, rejected=0.01), Bar(utilisation=0.99, rejected=0.001)
WARM_UP = 5.0
USUAL_WORKERS = 4

Make = Callable[[float], Trial]
"""Makes a scenario that is measured for this many minutes."""


def _model(**changes: Any) -> SimulatedModel:
    usual: dict[str, Any] = {
        "requests_per_minute": PER_MINUTE,
        "latency_ms": MEDIAN_MS,
        "latency_sigma": SIGMA,
        "output_tokens": 50.0,
        "windows_from": "start",
    }
    return SimulatedModel.model_validate(usual | changes)


def _one(name: str, about: str, measured: float, model: SimulatedModel, **more: Any) -> Trial:
    bar = BAR_WITH_HEADERS if model.headers in ("ratelimit", "full") else BAR
    return Trial.model_validate(
        {
            "name": name,
            "about": about,
            "models": {"model": model},
            "workers": USUAL_WORKERS,
            "minutes": WARM_UP + measured,
            "warm_up_minutes": WARM_UP,
            "bar": bar,
        }
        | more
    )


def _steady(shape: str, headers: Headers) -> Make:
    hint = {"none": "no hint", "retry_after": "Retry-After", "ratelimit": "limit headers"}[headers]
    kind = {
        "bucket": "a bucket with 1 s of burst",
        "window": "fixed windows of 60 s",
        "sliding": "a sliding window of 60 s",
        "second": "windows of 1 s",
    }[shape]

    def make(minutes: float) -> Trial:
        about = f"{PER_MINUTE:g} a minute as {kind}; {hint}."
        return _one(f"{shape}-{headers}", about, minutes, _model(shape=shape, headers=headers))

    return make


def _halves(minutes: float) -> Trial:
    model = _model(limit_changes=((_middle(minutes), PER_MINUTE / 2),))
    return _one("limit-halves", "The limit halves after half of the time; no hint.", minutes, model)


def _doubles(minutes: float) -> Trial:
    model = _model(limit_changes=((_middle(minutes), PER_MINUTE * 2),))
    return _one("limit-doubles", "The limit doubles after half of the time; no hint.", minutes, model)


def _tokens(minutes: float) -> Trial:
    model = _model(tokens_per_minute=120_000.0, output_tokens=200.0, output_tokens_stddev=60.0)
    load = Load(input_tokens=100, max_tokens=1000)
    about = "600 requests and 120,000 tokens a minute, 300 tokens a call, 1,000 reserved; no hint."
    return _one("requests-and-tokens", about, minutes, model, loads=(load,))


def _others(minutes: float) -> Trial:
    model = _model(foreign=((_middle(minutes), min(600.0, minutes * 20), PER_MINUTE / 2),))
    return _one("others-take-half", "Others use half of the limit for 10 minutes; no hint.", minutes, model)


def _outage(minutes: float) -> Trial:
    model = _model(outages=((_middle(minutes), 120.0),))
    return _one("outage", "Every connection is reset for 2 minutes; no hint.", minutes, model)


def _shed(minutes: float) -> Trial:
    about = "50 calls in flight get a 429 at the same moment; no hint."
    return _one("shed-50", about, minutes, _model(), sheds=((_middle(minutes), 50),))


def _teams(minutes: float) -> Trial:
    loads = (Load(team="one"), Load(team="two"))
    return _one("two-teams", "Two equal teams share the lane; no hint.", minutes, _model(), loads=loads)


def _five_a_minute(minutes: float) -> Trial:
    model = _model(requests_per_minute=5.0)
    more = {"loads": (Load(jobs=60),), "minutes": None, "warm_up_minutes": 0.0, "bar": None}
    return _one("five-a-minute", "60 jobs on a lane of 5 a minute; no hint.", minutes, model, **more)


def _places(minutes: float) -> Trial:
    model = _model(requests_per_minute=None, max_concurrency=50)
    return _one("concurrency-429", "50 concurrent calls, a 429 for more; no hint.", minutes, model)


def _places_and_a_queue(minutes: float) -> Trial:
    model = _model(requests_per_minute=None, max_concurrency=50, queue=100_000)
    about = "50 concurrent calls, others wait at the provider; no hint."
    return _one("concurrency-queue", about, minutes, model)


def _middle(minutes: float) -> float:
    """Seconds from the start to the middle of what is measured."""
    return (WARM_UP + minutes / 2) * 60


_SHAPES = ("bucket", "window")
_HEADERS: tuple[Headers, ...] = ("none", "retry_after", "ratelimit")

EVERY_SIZE: dict[str, Make] = {
    f"{shape}-{headers}": _steady(shape, headers) for shape in _SHAPES for headers in _HEADERS
}
"""Scenarios that are played with 1, 4 and 16 workers."""

ONE_SIZE: dict[str, Make] = {
    "limit-halves": _halves,
    "limit-doubles": _doubles,
    "requests-and-tokens": _tokens,
    "others-take-half": _others,
    "outage": _outage,
    "shed-50": _shed,
    "two-teams": _teams,
    "five-a-minute": _five_a_minute,
    "sliding-none": _steady("sliding", "none"),
    "second-none": _steady("second", "none"),
    "concurrency-429": _places,
    "concurrency-queue": _places_and_a_queue,
}
"""Scenarios that are played with 4 workers."""

CATALOGUE = EVERY_SIZE | ONE_SIZE
MINUTES, SIZES = 55.0, (1, 4, 16)


def scenarios(
    names: Sequence[str] = (), seeds: int = 1, workers: Sequence[int] = (), minutes: float = MINUTES
) -> list[Trial]:
    """The named scenarios (default: all), one for each number of workers and each seed from 0.

    Raises ``KeyError`` for an unknown name.
    """
    return [
        CATALOGUE[name](minutes).model_copy(update={"workers": count, "slots": _slots(count), "seed": seed})
        for name in names or CATALOGUE
        for count in workers or (SIZES if name in EVERY_SIZE else (USUAL_WORKERS,))
        for seed in range(seeds)
    ]


def _slots(workers: int) -> int:
    """400 slots in all, however many workers there are."""
    return 400 // workers
