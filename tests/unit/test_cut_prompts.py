"""A prompt that its server seems to have cut is noted at its record, and counted in a summary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.views.summary import Endings
from fairlane.client.views.tally import Tally
from fairlane.model.job import JobState
from fairlane.model.outcome import FlawedAnswer, Outcome, Success
from fairlane.model.record import PROMPT_CUT
from fairlane.model.results import TaskResult, assemble
from fairlane.model.run import RunState
from fairlane.model.tokens import Usage
from fairlane_workers.execution.calls import with_note
from tests.support.records import spec_of

PROSE = "The quick brown fox jumps over lazy dog number {}, and nobody has ever asked it why. "
LONG = "".join(PROSE.format(number) for number in range(500))


def noted(content: Any, counted: int | None, cached: int | None = None) -> bool:
    outcome = with_note(
        Success("yes", Usage(counted, 1, cached)), [{"role": "user", "content": content}, {"role": "system"}]
    )
    assert isinstance(outcome, Success)
    return len(outcome.notes) == 1


def test_a_prompt_of_which_a_server_read_a_part_is_noted() -> None:
    assert noted(LONG, 2050)
    assert noted(LONG, 4096)
    assert noted([{"type": "text", "text": LONG}], 2050)
    assert not noted(LONG, len(LONG) // 5), "read whole"


@pytest.mark.parametrize("counted", [None, 0, 1, 10])
def test_a_count_that_is_none_shows_nothing(counted: int | None) -> None:
    assert not noted(LONG, counted)


def test_what_a_cache_held_was_read_too() -> None:
    assert not noted(LONG, 2050, cached=10_000)


@pytest.mark.parametrize("text", [" " * 40_000, "=" * 40_000, "| - " * 10_000, "\n\t" * 20_000])
def test_many_repeated_characters_make_few_tokens(text: str) -> None:
    assert not noted(text, 300)


def test_an_image_has_no_text() -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'iVBO' * 20_000}"}}
    assert not noted([{"type": "text", "text": "See"}, image], 1000)


@given(st.text(max_size=300), st.integers(1, 40), st.integers(0, 5000))
def test_no_prompt_of_seven_characters_a_token_or_fewer_is_noted(text: str, times: int, counted: int) -> None:
    whole = text * times
    if noted(whole, counted):
        assert len(whole) > 7 * counted >= 7 * 256


@pytest.mark.parametrize("outcome", [FlawedAnswer("none", usage=Usage(2050)), Success("yes")])
def test_other_outcomes_stay_as_they_are(outcome: Outcome) -> None:
    assert with_note(outcome, [{"role": "user", "content": LONG}]) is outcome


def test_a_summary_counts_them() -> None:
    spec = spec_of()
    tally = Tally(spec, {})
    for notes in ((), (f"{PROMPT_CUT}: it counted 2,050 tokens",), ("other",)):
        stored = TaskResult(JobState.SUCCEEDED, "yes", attempts=1, notes=notes).to_json()
        tally.add(assemble(spec, 0, {}, [stored]))
    (found,) = tally.summary(RunState.COMPLETED).endings.values()
    assert found == Endings(3, 0, 0, 0, 1)
    assert found.in_words() == "1 of 3 to prompts that the server seems to have cut"
