"""``--filter-…``: which tests, prompts and providers run, chosen as promptfoo chooses them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from fairlane.apps.promptfoo.reading.case import Case
from fairlane.core.errors import SubmissionError

_ASCII = regex.ASCII
"""As in JavaScript, ``\\d``, ``\\w`` and ``\\b`` know ASCII alone."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the command line or the configuration.

    ``first`` and ``sample`` are numbers of tests, ``range`` is ``start:end`` from 0 without the end.
    ``failing`` has the variables of earlier results that did not pass; ``None``: no such filter.
    """

    pattern: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    first: int | None = None
    range: str | None = None
    sample: int | None = None
    seed: int | None = None
    prompts: str | None = None
    providers: str | None = None
    failing: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        """Raises `SubmissionError` for a pattern or a range that is none."""
        for field in ("pattern", "prompts", "providers"):
            _searcher(f"--filter-{field}", getattr(self, field))
        _bounds(self.range)

    @property
    def any(self) -> bool:
        """Whether any filter chooses tests."""
        chosen = (self.pattern, self.first, self.range, self.sample, self.failing)
        return bool(self.metadata) or any(each is not None for each in chosen)

    def tests(
        self,
        found: Sequence[Case],
        earlier: Callable[[Sequence[Case]], Sequence[Case]],
        *,
        scenario: int | None = None,
    ) -> list[Case]:
        """The tests that run. ``earlier`` keeps those that did not pass in ``failing``.

        The tests of a scenario, whose number is given, have no range and no metadata of their own.
        """
        kept = list(found)
        if self.metadata and scenario is None:
            kept = [each for each in kept if self._has_metadata(each)]
        if self.failing is not None:
            kept = list(earlier(kept))
        if self.pattern is not None:
            search = _searcher("--filter-pattern", self.pattern)
            kept = [each for each in kept if each.description and search(each.description)]
        if scenario is None:
            kept = self.ranged(kept)
        if self.first is not None:
            kept = kept[: self.first]
        if self.sample is not None:
            kept = _shuffled(kept, self._seed(scenario))[: self.sample]
        return kept

    def ranged(self, tests: Sequence[Case]) -> list[Case]:
        """The tests whose places are in the range."""
        start, end = _bounds(self.range)
        return list(tests[start:end])

    def has_prompt(self, label: str, raw: str) -> bool:
        """Whether a prompt runs, by its label, or by its file and text."""
        search = _searcher("--filter-prompts", self.prompts)
        return search(label) or search(f"{label}: {raw}") or search(raw)

    def has_provider(self, raw: Any) -> bool:
        """Whether a provider runs, by its id or its label."""
        search = _searcher("--filter-providers", self.providers)
        names = [raw]
        if isinstance(raw, Mapping):
            names = [raw.get("id"), raw.get("label")]
            if "id" not in raw and len(raw) == 1:
                key, options = next(iter(raw.items()))
                own = options if isinstance(options, Mapping) else {}
                names = [own.get("id", key), own.get("label")]
        return any(search(each) for each in names if isinstance(each, str))

    def _has_metadata(self, test: Case) -> bool:
        for key, wanted in self.metadata:
            value = test.metadata.get(key)
            values = value if isinstance(value, list) else [] if value is None else [value]
            if not any(wanted in _written(each) for each in values):
                return False
        return True

    def _seed(self, scenario: int | None) -> str | None:
        if self.seed is None:
            return None
        return str(self.seed if scenario is None else _hashed(f"{self.seed}:{scenario}"))


def metadata_of(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """``["key=value"]`` as pairs. Raises `SubmissionError`."""
    pairs = []
    for each in given:
        key, _, value = each.partition("=")
        if not (key and value):
            raise SubmissionError(
                "--filter-metadata", each, "is not key=value", "Write --filter-metadata type=unit."
            )
        pairs.append((key, value))
    return tuple(pairs)


def _written(value: Any) -> str:
    """A value as JavaScript writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _searcher(field: str, pattern: str | None) -> Callable[[str], bool]:
    if pattern is None:
        return lambda _: True
    try:
        compiled = regex.compile(pattern, _ASCII)
    except regex.error as error:
        raise SubmissionError(
            field, pattern, f"is no pattern: {error}", "Give a regular expression."
        ) from error
    return lambda text: compiled.search(text, timeout=1.0) is not None


def _bounds(text: str | None) -> tuple[int, int | None]:
    if text is None:
        return 0, None
    found = regex.fullmatch(r"\s*(\d*)\s*:\s*(\d*)\s*", text, _ASCII)
    start, end = (found[1], found[2]) if found else ("", "")
    if not (start or end) or (start and end and int(start) > int(end)):
        raise SubmissionError(
            "--filter-range", text, "is no range of tests", "Write start:end from 0, like 0:10 or 10:."
        )
    return int(start or 0), int(end) if end else None


def _shuffled(tests: Sequence[Case], seed: str | None) -> list[Case]:
    """The tests in a random order, for a seed in promptfoo's own: Fisher and Yates from the end."""
    draw = random.random if seed is None else _mulberry32(_hashed(seed))
    order = list(tests)
    for last in range(len(order) - 1, 0, -1):
        other = int(draw() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def _hashed(text: str) -> int:
    """FNV-1a of 32 bits, over UTF-16 code units."""
    state = 0x811C9DC5
    units = text.encode("utf-16-le")
    for at in range(0, len(units), 2):
        state = ((state ^ int.from_bytes(units[at : at + 2], "little")) * 0x01000193) & 0xFFFFFFFF
    return state


def _mulberry32(seed: int) -> Callable[[], float]:
    """The generator of this name: numbers from 0, below 1."""
    state = seed

    def draw() -> float:
        nonlocal state
        state = (state + 0x6D2B79F5) & 0xFFFFFFFF
        value = ((state ^ state >> 15) * (state | 1)) & 0xFFFFFFFF
        value ^= (value + ((value ^ value >> 7) * (value | 61))) & 0xFFFFFFFF
        return ((value ^ value >> 14) & 0xFFFFFFFF) / 2**32

    return draw
