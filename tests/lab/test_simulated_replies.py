"""A reply has the drawn length, but never more than the request allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.lab.simulator.model.replies import Composer
from fairlane.lab.simulator.wire.dialect import Call, count_tokens
from fairlane.testing import SimulatedModel


def call(prompt: str, max_tokens: int | None = None) -> Call:
    return Call("fast", prompt, prompt, max_tokens, stream=False, include_usage=False)


@given(st.integers(1, 500), st.none() | st.integers(1, 500))
def test_filler_has_the_drawn_length_clipped_to_max_tokens(drawn: int, max_tokens: int | None) -> None:
    reply = Composer("fast", SimulatedModel(), 0).compose(call("hello", max_tokens), drawn)
    assert reply.completion_tokens == count_tokens(reply.text) == min(drawn, max_tokens or drawn)
    assert reply.truncated == (max_tokens is not None and drawn > max_tokens)
    assert reply.text == reply.text.strip()


def test_max_output_tokens_limits_every_answer() -> None:
    reply = Composer("fast", SimulatedModel(max_output_tokens=8), 0).compose(call("hello", 100), 50)
    assert (reply.completion_tokens, reply.truncated) == (8, True)


def test_filler_begins_with_the_digest_of_its_prompt() -> None:
    composer = Composer("fast", SimulatedModel(), 0)
    one, same, other = (composer.compose(call(prompt), 9).text for prompt in ("a", "a", "b"))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (SimulatedModel(output="echo"), "How many?"),
        (SimulatedModel(output="fixed", fixed_text='{"ok": true}'), '{"ok": true}'),
    ],
)
def test_an_echo_and_a_fixed_text_are_unchanged(model: SimulatedModel, text: str) -> None:
    reply = Composer("fast", model, 0).compose(call("How many?"), 1)
    assert (reply.text, reply.completion_tokens) == (text, count_tokens(text))


def test_max_tokens_truncates_an_echo() -> None:
    reply = Composer("fast", SimulatedModel(output="echo"), 0).compose(call("How many?", 1), 1)
    assert (reply.text, reply.truncated) == ("How ", True)
