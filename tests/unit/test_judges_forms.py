"""Forms other than words of English: JSON between prose, numbers, labels, other scripts."""
# ruff: noqa: RUF001  characters of full width

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.evaluators.judge import parse_choice, read_verdict

YES_NO = {"yes": 1.0, "no": 0.0}
PASS_FAIL = {"pass": 1.0, "fail": 0.0}
HALVES = {"0": 0.0, "0.5": 0.5, "1": 1.0}
DECIMALS = {"0.0": 0.0, "1.0": 1.0}
SIGNED = {"-1": -1.0, "0": 0.0, "1": 1.0}
SCALE = {str(n): float(n) for n in range(1, 6)}
CHINESE = {"正确": 1.0, "错误": 0.0}
GRADES = {"合格": 1.0, "不合格": 0.0}


@pytest.mark.parametrize(
    ("choices", "answer", "value"),
    [
        (YES_NO, '```json\n{"reason": "ok", "choice": "yes"}\n```\nLet me know if you need more!', 1),
        (YES_NO, '{"choice": "yes"}\n\nI hope this helps! If you have any questions, feel free to ask.', 1),
        (YES_NO, 'Here is my evaluation of the output:\n```JSON\n{"choice": "no"}\n```', 0),
        (YES_NO, 'The sum is not right.\n\n{"reason": "5", "choice": "no"}', 0),
        (YES_NO, '{"reason": "It wrote </think> twice.", "choice": "yes"}', 1),
        (YES_NO, '{"reason": "one\ntwo", "choice": "yes"}', 1),
        (YES_NO, r'{"reason": "\(x\)", "choice": "yes"}', 1),
        (YES_NO, '{"verdict": true}', 1),
        (YES_NO, '{"choice": false, "reason": "so"}', 0),
        (PASS_FAIL, '{"pass": true}', 1),
        (PASS_FAIL, '{"result": false}', 0),
        (HALVES, '{"score": 0.5}', 0.5),
        (HALVES, "0.50", 0.5),
        (HALVES, "Score: 1.0", 1),
        (DECIMALS, "1", 1),
        (DECIMALS, '{"score": 1}', 1),
        (SIGNED, "−1", -1),
        (SIGNED, "+1", 1),
        (SIGNED, "Score: −1", -1),
        (SIGNED, '{"score": -1}', -1),
        (SIGNED, "－１", -1),
        (SCALE, "Rating: ４", 4),
        (SCALE, "4.0", 4),
        (SCALE, "- 4", 4),
        (SCALE, "评分：4分", 4),
        (YES_NO, "CHOICE: yes", 1),
        (YES_NO, "reason: good\nchoice: yes", 1),
        (YES_NO, "Verdict - yes", 1),
        (YES_NO, "**Verdict** – no", 0),
        (YES_NO, "Final: yes", 1),
        (YES_NO, "Verdict：ｙｅｓ", 1),
        (CHINESE, "判断：正确", 1),
        (CHINESE, "推理：2 + 2 = 4，不正确的是别的。\n最终判断：错误。", 0),
        (CHINESE, "【正确】", 1),
        (CHINESE, "正确。", 1),
        (CHINESE, "Verdict: 错误", 0),
        (GRADES, "判定：不合格", 0),
        (GRADES, "判定：合格", 1),
        (YES_NO, "判断：yes", 1),
    ],
)
def test_a_plain_verdict_counts(choices: Mapping[str, float], answer: str, value: float) -> None:
    score = parse_choice(answer, choices)
    assert (score.value, score.error) == (value, None)


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        (YES_NO, 'The output {"choice": "yes"} is rude.'),
        (YES_NO, 'The student wrote:\n{"choice": "yes"}\nThat is wrong.'),
        (YES_NO, 'The output was:\n```json\n{"choice": "yes"}\n```\nIt is rude.'),
        (YES_NO, 'The output was:\n```json\n{"choice": "yes"}\n```'),
        (YES_NO, '{"choice": "yes"}\n\nWait, that is not right.'),
        (YES_NO, '{"choice": "yes"}\n\nVerdict: no'),
        (YES_NO, 'Verdict: no\n\n{"choice": "yes"}'),
        (YES_NO, '{"choice": "yes"}\n\nI hope nobody accepts it, though.'),
        (PASS_FAIL, '{"choice": "pass"}\n\nIf you want the truth, it is no good.'),
        (YES_NO, 'It should be:\n{"choice": "yes"}'),
        (YES_NO, '{"choice": "yes", "choice": "no"}'),
        (YES_NO, '{"choice": "yes", "Choice": "no"}'),
        (YES_NO, 'He wrote {"verdict": "yes"}, which is wrong.'),
        (YES_NO, 'yes {"verdict": "no"}'),
        (YES_NO, 'So:\n{"reason": "Is it right: yes'),
        (YES_NO, "<think>it is yes yes"),
        (PASS_FAIL, '{"fail": true}'),
        (YES_NO, '{"incorrect": true}'),
        ({**YES_NO, **PASS_FAIL}, '{"verdict": true}'),
        (SCALE, '{"score": true}'),
        (SCALE, '{"rating": 4.5}'),
        (SCALE, "4½"),
        (SCALE, "4²"),
        (SCALE, "4①"),
        (SIGNED, "- 1"),
        (SIGNED, "– 1"),
        (SIGNED, "–1"),
        (SIGNED, "- **1**"),
        (SIGNED, "Score: - 1"),
        (SIGNED, "Score - 1"),
        (SIGNED, "minus 1"),
        (HALVES, "The answer is 0.5. The student is wrong."),
        (HALVES, "0.5.1"),
        (CHINESE, "不正确"),
        (CHINESE, "答案是正确的吗"),
        (CHINESE, "正确，但不完整"),
        (CHINESE, "正确。不过仔细看，应该是错误的"),
        (CHINESE, "参考答案：正确"),
        (CHINESE, "学生的判断：正确"),
        (CHINESE, "我不会说它是\n正确"),
        (CHINESE, "正确/错误"),
        (GRADES, "并不合格"),
        (YES_NO, "yes，但是不对"),
        ({"1": 1.0, "1.0": 2.0}, "1.00"),
    ],
)
def test_what_may_mean_something_else_has_no_score(choices: Mapping[str, float], answer: str) -> None:
    score = parse_choice(answer, choices)
    assert score.value is None
    assert score.error


def test_an_error_says_what_is_wrong_with_the_json() -> None:
    assert "breaks off" in (read_verdict('{"reason": "so', YES_NO).score.error or "")
    error = read_verdict('{"choice": "yes",}', YES_NO).score.error or ""
    assert "cannot be read" in error
    assert "breaks off" not in error
    assert "two values" in (read_verdict('{"choice": "yes", "choice": "no"}', YES_NO).score.error or "")


@given(
    st.sampled_from([CHINESE, GRADES, {"正解": 1.0, "不正解": 0.0}, {"ถูก": 1.0, "ผิด": 0.0}]),
    st.data(),
    st.text(alphabet="是的不非没答案很有点もですถูกต้องไม่", min_size=1, max_size=4),
    st.sampled_from(["{0}{1}", "{1}{0}", "{0}{1}{0}", "判断：{0}{1}", "Verdict: {1}{0}"]),
)
def test_a_choice_within_a_word_of_its_script_is_no_verdict(
    choices: dict[str, float], data: st.DataObject, letters: str, around: str
) -> None:
    choice = data.draw(st.sampled_from(list(choices)))
    answer = around.format(letters, choice)
    score = parse_choice(answer, choices)
    said = answer.rpartition("：")[2].removeprefix("Verdict: ")
    assert score.value is None or said in choices, answer


@given(
    st.sampled_from([SIGNED, HALVES, DECIMALS, SCALE]),
    st.data(),
    st.sampled_from(["{}", "{}0", "{}00", "0{}", "+{}"]),
    st.sampled_from(["{}", "**{}**", "Score: {}", '{{"score": "{}"}}', "Rating: [[{}]]", "{}\n"]),
)
def test_a_number_has_the_score_of_its_choice_or_none(
    choices: dict[str, float], data: st.DataObject, written: str, around: str
) -> None:
    number = written.format(data.draw(st.sampled_from(list(choices))))
    score = parse_choice(around.format(number), choices)
    try:
        value = float(number)
    except ValueError:
        value = None
    by_number = {float(choice): points for choice, points in choices.items()}
    assert score.value in (None, by_number.get(value) if value is not None else None)
    assert score.value is not None or value not in by_number or number.startswith("0-")


@given(
    st.sampled_from(list(YES_NO)),
    st.text(max_size=60),
    st.sampled_from(["{0}\n{1}", "{1}\n\n{0}", "{0} {1}"]),
)
def test_a_judges_json_is_its_choice_or_nothing_whatever_surrounds_it(
    choice: str, prose: str, around: str
) -> None:
    answer = around.format(prose, f'{{"reason": "So.", "choice": "{choice}"}}')
    assert read_verdict(answer, YES_NO).score.value in (YES_NO[choice], None)
