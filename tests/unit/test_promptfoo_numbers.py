"""Scores and metrics are the numbers that promptfoo 0.121.20 computes for the same configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.apps.promptfoo.checking.texts import bleu, rouge
from fairlane.apps.promptfoo.checking.treebank import words_of
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.derived import Derived
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from fairlane.apps.promptfoo.scoring.tally import Cell, Tally
from fairlane.apps.promptfoo.scoring.verdicts import Verdict
from tests.support.promptfoo import Folder, asserting, record
from tests.support.promptfoo_cases import MEASURED

CELL = Cell("p", "o")


@pytest.fixture
def programs() -> Iterator[Programs]:
    with Programs() as found:
        yield found


def verdicts(
    folder: Path, programs: Programs, outputs: Sequence[str], *checks: Any, **test: Any
) -> list[Verdict]:
    """The verdicts on the outputs of one test."""
    read = Folder(folder).read(asserting(*checks, **test))
    (run,) = read.runs
    row = dict((run.rows or read.rows)[0])
    scorer = Scorer(read.texts, programs, lambda _: [])
    records = [(record(each, row, item=number), run) for number, each in enumerate(outputs)]
    return [found for _, _, found in scorer.verdicts(records)]


@pytest.mark.parametrize(
    ("text", "value", "score"),
    [
        ("Ali had $21. Leila gave him half of her $100.", "Ali had $21. Leila gave of her $100.", 11 / 12),
        ("John arm wrestles 20 people.  He beats 80%.", "arm wrestles 20 people. He beats 80%.", 18 / 19),
        ('She said "I can\'t," and left.', "She said I can't and left", 7 / 9),
        ("it's 3.14, isn't it?", "it is 3.14 is n't it", 5 / 7),
        ("gimme the U.S. price: 1,000", "give me the US price : 1,000", 5 / 7),
        ("``a'' -- [b] ... c", "a b c", 1 / 2),
        ("cannot 'tis", "can not it is", 3 / 4),
        ('`a ("b") <c> d', 'a " b " < c >', 12 / 17),
        (" ", "a b", 0.0),
        ("日本語、はい", "日本語", 0.0),
    ],
)
def test_rouge_counts_the_words_that_promptfoo_counts(text: str, value: str, score: float) -> None:
    assert rouge(text, value, 0).score == pytest.approx(score)


def test_bleu_of_an_empty_reference_has_promptfoo_s_brevity() -> None:
    assert bleu("-5 &", ["", "[x] Dr. $5.00"], 0).score == pytest.approx(1e-7)


@given(st.text(alphabet="ab .,'\"`<([{?!:-$5\n\u00a0é\u0301", max_size=60))
def test_words_keep_every_letter_in_its_order(text: str) -> None:
    left = "".join(words_of(text)).replace("``", "").replace("''", "").replace('"', "")
    kept = "".join(text.split()).replace("``", "").replace("''", "").replace('"', "")
    assert left.replace("'", "").replace("`", "") == kept.replace("'", "").replace("`", "")


@pytest.mark.parametrize(("test", "output", "score", "metrics"), MEASURED)
def test_scores_and_metrics_of_a_test(
    tmp_path: Path,
    programs: Programs,
    test: dict[str, Any],
    output: str,
    score: float,
    metrics: dict[str, float],
) -> None:
    given_test = {name: each for name, each in test.items() if name != "assert"}
    (found,) = verdicts(tmp_path, programs, [output], *test["assert"], **given_test)
    assert found.score == pytest.approx(score)
    assert found.named_scores == pytest.approx(metrics)


def test_an_output_that_is_not_chosen_scores_nothing(tmp_path: Path, programs: Programs) -> None:
    checks = ({"type": "max-score"}, {"type": "rouge-n", "value": "eps alpha", "threshold": 0.1})
    outputs = ("eps alpha", "eps alpha and more")
    best, other = verdicts(tmp_path, programs, outputs, *checks)
    assert (best.outcome, best.score) == ("passed", 1.0)
    assert (other.outcome, other.score) == ("failed", 0.0)
    scores = Folder(tmp_path).write(
        "s.py", "def get_score(named, context):\n    return {'pass': True, 'score': 1}"
    )
    _, own = verdicts(tmp_path, programs, outputs, *checks, assertScoringFunction=f"file://{scores}")
    assert (own.outcome, own.score) == ("failed", 0.0)


def test_derived_metrics_read_sums_of_weighted_scores(tmp_path: Path, programs: Programs) -> None:
    checks = (
        {"type": "contains", "value": "a", "metric": "m", "weight": 3},
        {"type": "contains", "value": "z", "metric": "m"},
    )
    tally = Tally()
    for found in verdicts(tmp_path, programs, ("a", "b"), *checks):
        tally.add(CELL, record("a", {}), found)
    tally.derive([Derived("mean", "m / __count")])
    assert tally.metrics["m", CELL] == (3.0, 8.0)
    assert tally.metrics["mean", CELL] == (1.5, 1.0)


def test_a_reason_shows_how_a_score_differs_from_its_threshold(tmp_path: Path, programs: Programs) -> None:
    said = "{'pass': True, 'score': 0.7496, 'reason': 'x'}"
    (found,) = verdicts(tmp_path, programs, ["a"], {"type": "python", "value": said}, threshold=0.75)
    assert found.reasons == ("score 0.7496 is below the threshold of 0.75",)
