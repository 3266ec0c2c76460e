"""A judge's words count only where they decide: prose that mentions a choice is no verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.judge import parse_choice, read_verdict

RIGHT_WRONG = {"correct": 1.0, "incorrect": 0.0}
PASS_FAIL = {"pass": 1.0, "fail": 0.0}
YES_NO = {"yes": 1.0, "no": 0.0}
SCALE = {str(n): float(n) for n in range(1, 6)}
LETTERS = {"A": 1.0, "B": 0.0, "C": 0.5}


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        *(
            (RIGHT_WRONG, answer)
            for answer in (
                "This is not correct.",
                "The answer is not entirely correct",
                "I would not say correct here",
                "It isn't correct.",
                "It is far from correct.",
                "Not correct",
                "Verdict: not correct",
                "Verdict: not correct. The formula is correct.",
                "The answer is correct? No.",
                "Correct: no",
                "Correct - not at all",
                "Correct, but not entirely",
                "Correct? Hardly.",
                "is it correct",
                "So is it correct",
                "The answer would be correct if it said 5.",
                "The student says:\nThe answer is correct.",
                "The answer is correct. However, nobody asked.",
                "The answer is correct. Wait, it is not.",
                "The answer is correct. The explanation is incorrect.",
                "The answer is partially correct.",
                "Correct answer, wrong reasoning",
                "It is anything but\ncorrect.",
                "I would not call it\ncorrect",
                "!correct",
                "~~correct~~",
                "correct?",
                '{"incorrect": false}',
                '{"choice": "not correct"}',
                "Expected answer: correct",
                "[ ] correct\n[x] incorrect",
                "☐ correct\n☑ incorrect and wrong",
                "correct/incorrect",
                "Verdict: correct\nOn reflection, verdict: incorrect",
                "Correct.\n\nActually, incorrect.",
                "correct\nincorrect",
                "Correct\n\nWait: 2 + 2 is 4, so it is incorrect.",
                "This is correct\nNot correct.",
                "The answer is correct, says the student.",
                "Verdict: correct\nincorrect",
                "Conclusion: correct\n\nincorrect",
                "**incorrect**\nVerdict: correct\nThat is all.",
                "[[incorrect]] My verdict: correct",
                "Verdict: correct\nFinal verdict: not correct",
                "It is false that\nthe answer is correct.",
            )
        ),
        *(
            (PASS_FAIL, answer)
            for answer in (
                "It does not pass",
                "It doesn't pass.",
                "It did not fail",
                '{"fail": false}',
                "I'll pass on this one, sorry.",
                "Should it pass?",
                "Pass - no",
            )
        ),
        *(
            (YES_NO, answer)
            for answer in (
                "There is no doubt that the answer is right.",
                "I have no idea.",
                "No idea.",
                "No problem with the answer.",
                "I cannot judge this; no reference answer was given.",
                "It is not a yes.",
                "Yes and no.",
                "Yes, or rather no",
                "No, I mean yes",
                "yes or no?",
                "yes\nno",
                "no\nOn second thoughts:\nyes",
                "No. 5 is the better one",
                "Expected: no\nAnswer: yes\n\nThese do not agree.",
                "Expected: no\nAnswer: yes",
            )
        ),
        *(
            (SCALE, answer)
            for answer in (
                "3-4",
                "3 - 4",
                "3 – 4",
                "3 to 4",
                "3 or 4",
                "between 3 and 4",
                "Rating: 3-4",
                "Rating: 3, maybe 4",
                "Rating: 4/10",
                "4 out of 10",
                "It makes 2 mistakes.",
                "More than 3",
                ">3",
                "~3",
                "3+",
                "-3",
                ".5",
                "4.5",
                "4.5/5",
                "It deserves more than 2 out of 5.",
                "1. The sum is right.",
                "1. The sum is right.\n2. The tone is wrong.",
                "The answer is 4. The student is wrong.",
                "Accuracy: 4\nStyle: 5",
                "Confidence: 5",
                '{"score": 4, "rating": 5}',
                '{"accuracy": 4, "style": 5}',
                "Score: 3\nScore: 5",
            )
        ),
        *(
            (LETTERS, answer)
            for answer in (
                "A better answer would name its source.",
                "A-",
                "A or B",
                "[[A]] or [[B]]",
                "The reference answer is A. The student chose another one.",
            )
        ),
    ],
)
def test_a_choice_in_prose_is_no_verdict(choices: Mapping[str, float], answer: str) -> None:
    score = parse_choice(answer, choices)
    assert score.value is None
    assert "the judge answered" in (score.error or "")


@pytest.mark.parametrize(
    ("choices", "answer", "value"),
    [
        (RIGHT_WRONG, "correct.", 1),
        (RIGHT_WRONG, "**Incorrect**", 0),
        (RIGHT_WRONG, "✅ Correct!", 1),
        (RIGHT_WRONG, "Verdict: correct", 1),
        (RIGHT_WRONG, "**Verdict:** Correct", 1),
        (RIGHT_WRONG, "**Verdict**: *incorrect*", 0),
        (RIGHT_WRONG, "## Verdict\n\nIncorrect\n\n## Reasons\n\nThe sum is not correct.", 0),
        (RIGHT_WRONG, "The sum is not correct.\n\n**incorrect**", 0),
        (RIGHT_WRONG, "It isn't the expected sum.\nFinal verdict: incorrect.", 0),
        (RIGHT_WRONG, "Verdict: incorrect because the sum is not correct.", 0),
        (RIGHT_WRONG, "The answer is correct.", 1),
        (RIGHT_WRONG, "The answer is entirely correct!", 1),
        (RIGHT_WRONG, "I would say the answer is incorrect.", 0),
        (RIGHT_WRONG, "The model's answer is correct. It adds up.", 1),
        (RIGHT_WRONG, "2 + 2 is 4, not 5. Therefore, the answer is incorrect.", 0),
        (RIGHT_WRONG, "Verdict: The answer is correct.", 1),
        (RIGHT_WRONG, "Correct. There is no mistake.", 1),
        (RIGHT_WRONG, "Correct because it adds up", 1),
        (RIGHT_WRONG, r"So it is $\boxed{\text{incorrect}}$.", 0),
        (RIGHT_WRONG, "<verdict>incorrect</verdict>", 0),
        (RIGHT_WRONG, "<reason>It is not correct.</reason>\n<verdict>incorrect</verdict>", 0),
        (RIGHT_WRONG, '```json\n{"reason": "It is not correct.", "verdict": "incorrect"}\n```', 0),
        (RIGHT_WRONG, 'So:\n```json\n{\n  "reason": "Not correct",\n  "verdict": "incorrect"\n}\n```', 0),
        ({"true": 1.0, "false": 0.0}, '{"verdict": false}', 0),
        (RIGHT_WRONG, '{"correct": false}', 0),
        (PASS_FAIL, '{"pass": false}', 0),
        (YES_NO, '{"choice": true}', 1),
        (PASS_FAIL, "Pass", 1),
        (PASS_FAIL, "FAIL - it is rude", 0),
        (PASS_FAIL, "It is a pass.", 1),
        (YES_NO, "Yes, because it adds up.", 1),
        (YES_NO, "No, the answer is not correct.", 0),
        (YES_NO, "No — it is 5.", 0),
        (YES_NO, "My verdict is no.", 0),
        (YES_NO, "I have no doubt.\n\nYes", 1),
        (SCALE, "4", 4),
        (SCALE, "4/5", 4),
        (SCALE, "4 out of 5", 4),
        (SCALE, "4/5 stars", 4),
        (SCALE, "**4 / 5**", 4),
        (SCALE, "Rating: 4 out of 5", 4),
        (SCALE, "Rating: 4 (out of 5)", 4),
        (SCALE, "Rating: 4/5. It makes 2 mistakes.", 4),
        (SCALE, "Rating: [[4]]", 4),
        (SCALE, "It makes 2 mistakes. My rating: [[3]]", 3),
        (SCALE, "I would give this answer 2 points out of 5.", 2),
        (SCALE, "I rate this answer 3.", 3),
        (SCALE, "It makes 2 mistakes.\n\n4", 4),
        (SCALE, "4\n\nIt makes 2 mistakes.", 4),
        (SCALE, "Rating: 2\nConfidence: 5", 2),
        (SCALE, "Accuracy: 4\nStyle: 5\nOverall: 4", 4),
        (SCALE, "Score: 3\nScore: 5\nFinal score: 4", 4),
        (SCALE, '{"score": 4, "max": 5}', 4),
        (SCALE, '{"rating": 4.0}', 4),
        (RIGHT_WRONG, "Yes, this is correct.", 1),
        (RIGHT_WRONG, "This answer is incorrect because it isn't 5.", 0),
        (SCALE, "4 - good but terse", 4),
        (SCALE, "Rating: **4**/5", 4),
        (SCALE, "Rating: 4 stars", 4),
        (LETTERS, "(B), it names no source", 0),
        (LETTERS, "B. It names no source", 0),
        (LETTERS, "My final verdict is: [[B]]", 0),
    ],
)
def test_a_plain_verdict_counts(choices: Mapping[str, float], answer: str, value: float) -> None:
    score = parse_choice(answer, choices)
    assert (score.value, score.error) == (value, None)


def test_an_error_quotes_the_answer_and_says_why() -> None:
    error = parse_choice("This is not correct.", RIGHT_WRONG).error
    assert (
        error == "the judge answered 'This is not correct.', which is no plain verdict of correct, incorrect"
    )


@pytest.mark.parametrize("answer", ['{\n  "reason": "It is: yes', '```json\n{"reason": "So: yes'])
def test_json_that_breaks_off_has_no_score_however_it_is_laid_out(answer: str) -> None:
    assert "breaks off" in (read_verdict(answer, YES_NO).score.error or "")


def test_the_reason_beside_another_field_is_kept() -> None:
    assert read_verdict('{"reason": "So.", "verdict": "no"}', YES_NO).said == "So."


NEGATIONS = (
    "not",
    "never",
    "hardly",
    "not entirely",
    "by no means",
    "far from",
    "anything but",
    "not at all",
)
SUBJECTS = ("It is", "The answer is", "I would say it is", "This was", "The answer,\nI think, is")
TAILS = ("", ".", "!", "\n", " here.", " at all", ", I fear.", ".\n\nThank you.", ", as it adds up to 5.")


@given(
    st.sampled_from(SUBJECTS),
    st.sampled_from(NEGATIONS),
    st.sampled_from([*RIGHT_WRONG, *PASS_FAIL, "true", "A", "4"]),
    st.sampled_from(TAILS),
    st.sampled_from(("{}", "**{}**", '"{}"', "Well. {}", "{} That is all.", "Reason: {}", "Verdict: {}")),
)
def test_a_negated_choice_is_never_a_verdict(
    subject: str, negation: str, choice: str, tail: str, around: str
) -> None:
    choices = {**RIGHT_WRONG, **PASS_FAIL, "true": 1.0, "false": 0.0, "A": 1.0, **SCALE}
    answer = around.format(f"{subject} {negation} {choice}{tail}")
    assert parse_choice(answer, choices).value is None, answer


@given(
    st.sampled_from([RIGHT_WRONG, PASS_FAIL, YES_NO, SCALE, LETTERS]),
    st.data(),
    st.text(max_size=60) | st.sampled_from(["{'", '{"reason": "So', "[{", "{x}"]),
)
def test_a_verdict_on_the_last_line_outweighs_any_reasons(
    choices: dict[str, float], data: st.DataObject, reasons: str
) -> None:
    choice = data.draw(st.sampled_from(list(choices)))
    answer = f"{reasons}.\n\nFinal verdict: {choice}"
    if "</think>" in answer or "final" in reasons.casefold():
        return
    found = parse_choice(answer, choices)
    if "{" in reasons and found.value is None:  # the label may stand in a reason of JSON that breaks off
        assert "the JSON " in (found.error or "")
        return
    assert found.value == choices[choice]


WORDS = (
    "no",
    "not",
    "yes",
    "correct",
    "incorrect",
    "verdict",
    ":",
    "\n",
    ".",
    ",",
    "4",
    "/",
    "5",
    "[[",
    "]]",
    "*",
)


@given(
    st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join), st.sampled_from([RIGHT_WRONG, YES_NO, SCALE])
)
def test_any_words_have_a_choices_score_or_an_error(answer: str, choices: dict[str, float]) -> None:
    score = parse_choice(answer, choices)
    assert (score.value is None) == (score.error is not None)
    assert score.value is None or score.value in choices.values()


@pytest.mark.parametrize(
    "piece",
    [
        "\n",
        "*",
        ".",
        ". ",
        "verdict: ",
        "verdict: x. ",
        "4 / ",
        "yes ",
        "[[",
        "\\boxed{",
        "so, ",
        '" ',
        ": yes\n",
        "- ",
        "(",
    ],
)
def test_a_hostile_answer_is_read_in_moderate_time(piece: str) -> None:
    answer = (piece * 100_000)[:99_000] + "x"
    start = time.process_time()
    parse_choice(answer, {**YES_NO, **SCALE})
    assert time.process_time() - start < 5
