"""A run's report: what it tells, that it stands alone, and that no text of a row becomes part of it."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis import Redis

from fairlane.apps.report import words as in_words
from fairlane.apps.report.activity import LaneActivity, Point, activity_of
from fairlane.apps.report.binning import Bin, bins_of, nice_steps, quantile
from fairlane.apps.report.charts import histogram, throughput
from fairlane.apps.report.description import without_quotes
from fairlane.apps.report.gathering import MOST_CELLS, Gathering
from fairlane.apps.report.page import ReportSource, write_report
from fairlane.client.views.summary import TASK, Failure
from fairlane.core.clock import ManualClock
from fairlane.core.figures import figure
from fairlane.core.terminal_text import visible
from fairlane.evaluators.builders import contains, exact_match, llm_judge
from fairlane.model.choices import Message
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunSpec, RunState
from fairlane.model.run_status import LaneProgress, RoleTime, RunStatus
from fairlane.model.tokens import Price, Usage
from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lane_history import FINE, MINUTES, History, Reading
from tests.support.command_line import CommandLine

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}]]>"
SECRET = "ROW TEXT THAT STAYS AT HOME"
START_MS, MINUTE_MS = 1_790_000_000_000, 60_000


def spec(**changed: Any) -> RunSpec:
    made = RunSpec(
        run="r1",
        team="search",
        name="Sums, two prompts",
        prompts=(
            (Message(role="user", content=f"Q: {{{{ question }}}} {SECRET}"),),
            (Message(role="system", content=SECRET), Message(role="user", content="{{ question }}")),
        ),
        models=("sim:fast", "sim:careful"),
        params={"max_tokens": 64, "temperature": 0, "stop": [SECRET]},
        evaluators=(
            exact_match("answer"),
            contains(text=SECRET, name="mentions"),
            llm_judge("sim:judge", f"{SECRET} {{{{ output }}}}", {"yes": 1, "no": 0}, name="judge"),
        ),
        rows=200,
        page_rows=100,
        submitted_ms=START_MS - 500,
    )
    return made.model_copy(update=changed)


def records(count: int = 800, seed: int = 1) -> Iterator[Record]:
    chance = random.Random(seed)
    for item in range(count):
        prompt, model = item // 2 % 2, ("sim:fast", "sim:careful")[item % 2]
        failed = chance.random() < 0.04
        good = chance.random() < (0.9 if item % 2 else 0.7) + 0.05 * prompt
        judged = (
            None if chance.random() < 0.03 else round(min(1.0, chance.betavariate(5 if good else 2, 2)), 2)
        )
        yield Record(
            item=item,
            row={"question": f"{SECRET} {item}", "answer": str(item)},
            model=model,
            prompt=prompt,
            repetition=0,
            state=JobState.FAILED if failed else JobState.SUCCEEDED,
            output=None if failed else f"{SECRET} {item}",
            scores={} if failed else {"exact_match": float(good), "mentions": 1.0, "judge": judged},
            score_errors={} if failed or judged is not None else {"judge": f"no choice is '{SECRET}'"},
            usage=Usage() if failed else Usage(40 + item % 30, 8 + int(chance.expovariate(0.05)), 0),
            attempts=1,
            error=chance.choice(["503 overloaded", "content filter"]) if failed else None,
            latency_ms=int(chance.lognormvariate(6.4 + 0.4 * (item % 2), 0.5)),
            eval_usage={"judge": Usage(60, 2, 0)},
        )


def lane_activity(lane: str = "sim:fast") -> LaneActivity:
    chance = random.Random(2)
    points, limit = [], 600.0
    for number in range(40):
        limit = limit * 1.06 if number < 18 else 980.0
        refused = 14.0 if number in (18, 19, 30) else 0.0
        admitted = max(0.0, min(limit, 120.0 * number) * chance.uniform(0.94, 1.0))
        points.append(Point(START_MS + number * 5000, admitted, refused, limit))
    return LaneActivity(lane, START_MS, START_MS + 195_000, tuple(points), 2900, 5)


def source(found: Sequence[Record] | None = None, **changed: Any) -> ReportSource:
    some = list(records()) if found is None else list(found)
    status = RunStatus(
        run="r1",
        team="search",
        name="Sums, two prompts",
        state=RunState.COMPLETED,
        items=len(some),
        items_done=len(some),
        jobs=2 * len(some),
        jobs_done=2 * len(some),
        by_state={},
        in_flight=0,
        retries=12,
        rate_limits=5,
        late_reports=0,
        lanes=(LaneProgress("sim:fast", len(some), len(some)),),
        submitted_ms=START_MS - 500,
        started_ms=START_MS,
        finished_ms=START_MS + 195_000,
    )
    prices = {"sim:*": Price(input=2.5, output=10)}
    made = ReportSource(
        spec(), status, some, (), prices, [lane_activity(), lane_activity("sim:judge")], START_MS + 300_000
    )
    return replace(made, **changed)


def page_of(tmp_path: Path, made: ReportSource, examples: int = 0) -> str:
    path = tmp_path / "report.html"
    write_report(path, made, examples)
    return path.read_text(encoding="utf-8")


class Seen(HTMLParser):
    """Tags, attributes and text of a page, as a browser takes them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data
        self.words += data.split()


def test_it_says_how_the_run_ended(tmp_path: Path) -> None:
    text = " ".join(Seen(page_of(tmp_path, source())).words)
    for shown in (
        "Sums, two prompts",
        "run r1 of team search",
        "items 800",
        "exact_match",
        "judge",
        "± s.e.",
        "duration 3:15 min",
        "8.21 jobs a second",
        "answers of 429 5",
        "5 of about 2,900 calls",
        "503 overloaded",
        "sim:careful",
        "max_tokens 64, temperature 0",
        "$",
    ):
        assert shown in text, shown


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    page = page_of(tmp_path, source(), examples=3)
    seen = Seen(page)
    assert not {"script", "link", "iframe", "img", "object", "base", "form"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name in ("src", "href")]
    assert not re.search(r"https?:|url\(|@import", page)
    assert "default-src 'none'" in page


def test_no_text_of_prompts_rows_or_outputs_is_in_it_unless_examples_are_asked_for(tmp_path: Path) -> None:
    assert SECRET not in page_of(tmp_path, source())
    page = page_of(tmp_path, source(), examples=2)
    assert page.count("<details>") == 2
    assert SECRET in page


def evil_source(words: str = EVIL) -> ReportSource:
    """A run in which everything that a team or a provider writes is ``words``."""
    evil = replace(
        next(records()),
        row={words: words},
        model=words,
        output=words,
        error=words,
        scores={"exact_match": 1.0},
        score_errors={"judge": words},
        arguments={"judge": words},
    )
    failed = replace(evil, item=1, state=JobState.FAILED, scores={})
    named = spec(name=words, models=(words,), params={words: words}, output_field=None)
    activity = lane_activity(words)
    made = source([evil, failed], spec=named, activity=[activity])
    return replace(made, status=replace(made.status, reason=words))


def test_what_looks_like_html_is_text(tmp_path: Path) -> None:
    seen = Seen(page_of(tmp_path, evil_source(), examples=5))
    assert not {"script", "img"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert seen.text.count(EVIL) >= 8
    assert "49" not in re.findall(r"\{\{ 7\*7 \}\}|\b49\b", EVIL)


@given(words=st.text(max_size=60))
def test_any_text_survives_as_text(words: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = "".join(sign for sign in words if sign.isprintable() or sign == " ")
    record = replace(next(records()), output=plain, row={"q": plain})
    made = source([record], spec=spec(name="n"))
    seen = Seen(page_of(tmp_path_factory.mktemp("page"), made, examples=1))
    assert plain in seen.text
    assert "script" not in seen.tags


STEERING = "\x1b[2J\x00\x9b\u202egnp.exe\u2066\ud800\x85"


def test_what_steers_a_terminal_or_the_order_of_letters_is_written_out(tmp_path: Path) -> None:
    """A page is also read by `less`; an override shows the letters of a name in another order."""
    page = page_of(tmp_path, evil_source(STEERING), examples=5)
    assert not (set(STEERING) - set("[2Jgnp.exe")) & set(page)
    assert page.count(visible(STEERING)) >= 8


def test_a_table_has_a_header_for_each_column_and_a_chart_its_name(tmp_path: Path) -> None:
    page = page_of(tmp_path, source())
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        head = re.search(r"<thead>.*?</thead>", table, re.DOTALL)
        rows = re.findall(r"<tr>.*?</tr>", table.partition("<tbody>")[2], re.DOTALL)
        columns = len(re.findall(r"<th scope=\"col\"", head.group())) if head else 2
        assert {len(re.findall(r"<t[hd][ >]", row)) for row in rows} == {columns}
        assert head is None or head.group().count("<th") - 1 == columns
    assert page.count('role="img"') == page.count("<svg") >= 6
    assert '<html lang="en">' in page


def test_an_empty_run_and_one_that_failed_throughout_have_a_page(tmp_path: Path) -> None:
    assert "None." in page_of(tmp_path, source([], activity=[]))
    failed = [replace(each, state=JobState.FAILED, scores={}, output=None, error="no") for each in records(5)]
    text = " ".join(Seen(page_of(tmp_path, source(failed, prices={}))).words)
    assert "0 % succeeded" in text
    invalid = [replace(each, state=JobState.INVALID, scores={}, error="no field") for each in records(5)]
    assert "no field" in page_of(tmp_path, source(invalid, activity=[]))


def test_outputs_that_are_cut_before_any_text_count_as_one_each(tmp_path: Path) -> None:
    cut = [replace(each, output="", finish_reason="length", state=JobState.SUCCEEDED) for each in records(5)]
    lone = [
        replace(each, item=each.item + 5, error="half \ud83d", state=JobState.FAILED) for each in records(1)
    ]
    text = " ".join(Seen(page_of(tmp_path, source([*cut, *lone]))).words)
    assert "outputs cut 5 at max_tokens outputs empty 5" in text
    assert "outputs cut or empty" not in text
    assert "half" in text


def test_a_page_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Record]:
        yield next(records())
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_report(tmp_path / "out.html", replace(source([]), records=broken()))
    assert list(tmp_path.iterdir()) == []


def test_errors_are_reported_without_what_they_quote() -> None:
    assert without_quotes("judge", "got 'my secret', not \"yes\"") == "got “…”, not “…”"
    assert without_quotes(TASK, "The model `slow` does not exist.") == "The model `slow` does not exist."
    assert without_quotes(TASK, f"flagged: '{'x' * 50}'") == "flagged: “…”"


def test_failures_that_differ_in_quotes_alone_are_one(tmp_path: Path) -> None:
    some = [
        replace(
            each, item=n, score_errors={"judge": f"got '{n}{SECRET}'"}, state=JobState.SUCCEEDED, error=None
        )
        for n, each in enumerate(records(7))
    ]
    page = page_of(tmp_path, source(some))
    assert page.count("got “…”") == 1
    assert Failure("judge", "x", 1, 0).count == 1


def test_examples_are_the_worst_and_the_best() -> None:
    gathering = Gathering(examples=4)
    some = [replace(each, item=n, scores={"s": float(n)}) for n, each in enumerate(records(50))]
    assert len(list(gathering.passing(some))) == 50
    assert [record.item for record in gathering.chosen()] == [0, 1, 48, 49]


def test_scores_at_the_end_of_a_float_have_their_place_among_the_examples() -> None:
    gathering = Gathering(examples=2)
    some = [
        replace(each, item=n, scores={"s": n * 8e307, "t": n * 8e307}) for n, each in enumerate(records(3))
    ]
    assert len(list(gathering.passing(some))) == 3
    assert [record.item for record in gathering.chosen()] == [0, 2]


def test_models_without_end_are_bounded() -> None:
    gathering = Gathering()
    some = (replace(next(records()), item=n, model=f"sim:m{n}") for n in range(MOST_CELLS + 9))
    assert len(list(gathering.passing(some))) == MOST_CELLS + 9
    assert len(gathering.cells) == MOST_CELLS
    assert gathering.more_cells


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), logarithmic=st.booleans())
@example(values=[*(n * 1e-9 for n in range(20)), 1e306], logarithmic=False)
@example(values=[*map(float, range(20)), 1.7e308, -1.7e308], logarithmic=False)
def test_every_value_is_in_one_bin(values: list[float], logarithmic: bool) -> None:
    if logarithmic:
        values = [abs(value) + 0.1 for value in values]
    bins = bins_of(values, logarithmic=logarithmic)
    assert sum(each.held for each in bins) == len(values)
    assert all(each.low <= each.high for each in bins)
    assert [each.low for each in bins] == sorted(each.low for each in bins)
    assert all(math.isfinite(each.high) for each in bins)
    assert (min(values), max(values)) == (bins[0].low, bins[-1].high)
    assert math.isclose(bins[0].low, min(values), rel_tol=1e-6, abs_tol=1e-6)


@given(most=st.floats(1e-6, 1e9))
def test_an_axis_ends_at_a_round_number_that_is_not_too_far(most: float) -> None:
    steps = nice_steps(most)
    assert steps[0] == 0
    assert most * (1 - 1e-6) <= steps[-1] <= 2.5 * most
    assert 2 <= len(steps) <= 8


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert quantile([5.0], 0.99) == 5.0
    assert quantile([1.0, 2.0], 1.0) == 2.0


def test_a_quantile_of_the_largest_floats_is_a_number() -> None:
    assert quantile([-1.7e308, 1.7e308], 0.5) == 0.0


def test_latencies_of_0_ms_leave_the_chart_to_the_others() -> None:
    bins = bins_of([0.0, 0.0, *map(float, range(200, 900))], logarithmic=True)
    assert sum(each.held > 0 for each in bins) > 4


def test_a_cell_without_a_number_of_tokens_shows_none(tmp_path: Path) -> None:
    some = [replace(each, usage=Usage()) for each in records()]
    page = page_of(tmp_path, source(some))
    assert '<td class="n">–</td><td class="n">–</td>' in page
    assert '<td class="n">0</td><td class="n">–</td>' not in page


def test_charts_are_well_formed_and_stay_inside() -> None:
    some = [
        histogram([Bin(0, 0, 3), Bin(1, 1, 0)], EVIL, str),
        throughput(lane_activity(EVIL), in_words.clock),
    ]
    some.append(histogram(bins_of([random.Random(4).gauss(0, 1) for _ in range(500)]), "x", figure))
    for chart in some:
        svg = ElementTree.fromstring(str(chart))  # noqa: S314
        _, _, width, height = map(float, svg.get("viewBox", "").split())
        for bar in svg.iter("rect"):
            x, y, wide, high = (float(bar.get(name, "-1")) for name in ("x", "y", "width", "height"))
            assert x >= 0
            assert y >= 0
            assert x + wide <= width
            assert y + high <= height
            assert bar.find("title") is not None


def status_over(from_ms: int, upto_ms: int) -> RunStatus:
    return replace(source([]).status, started_ms=from_ms, finished_ms=upto_ms)


def append(redis: Redis, step: Any, at_ms: Sequence[int], each: int = 10) -> History:
    history = History(redis, Keys("test"))
    history.append(
        (
            step,
            "sim:fast",
            Reading(ms, 600, "configured", granted=each * n, finished=each * n, refused=n // 4),
        )
        for n, ms in enumerate(at_ms)
    )
    return history


def test_a_lanes_activity_is_read_for_the_time_of_the_run(real_redis: Redis) -> None:
    now_ms = ManualClock().now_ms() + 10**9
    append(real_redis, FINE, range(now_ms - 600_000, now_ms + 1, 5000))
    status = status_over(now_ms - 300_000, now_ms - 200_000)
    (found,) = activity_of(real_redis, Keys("test"), status, now_ms)
    assert found.lane == "sim:fast"
    assert all(status.started_ms - 5000 <= point.at_ms <= status.finished_ms + 5000 for point in found.points)  # type: ignore[operator]
    assert {round(point.admitted) for point in found.points} == {120}
    assert {point.limit for point in found.points} == {600}


def test_429s_are_counted_among_calls_that_were_sent_not_among_permits(real_redis: Redis) -> None:
    now_ms = ManualClock().now_ms() + 10**9
    readings = (
        Reading(now_ms - 60_000 + 5000 * n, 600, "configured", granted=9 * n, finished=6 * n, refused=n)
        for n in range(9)
    )
    History(real_redis, Keys("test")).append((FINE, "sim:fast", each) for each in readings)
    (found,) = activity_of(real_redis, Keys("test"), status_over(now_ms - 60_000, now_ms), now_ms)
    assert (found.finished, found.refused) == (48, 8)


def test_an_older_run_is_read_by_the_minute_and_gaps_are_quiet(real_redis: Redis) -> None:
    now_ms = ManualClock().now_ms() + 10**9
    times = [now_ms - 7_200_000 + minute * MINUTE_MS for minute in (0, 1, 2, 10, 11)]
    append(real_redis, MINUTES, times)
    (found,) = activity_of(real_redis, Keys("test"), status_over(times[0], now_ms - 3_600_000), now_ms)
    assert [round(point.admitted) for point in found.points] == [10, 10, 0, 10, 10, 0, 0]
    assert found.points[-1].at_ms == now_ms - 3_600_000


def test_a_run_of_which_nothing_is_remembered_says_so(real_redis: Redis, tmp_path: Path) -> None:
    assert activity_of(real_redis, Keys("test"), status_over(1, 2), 10**12) == []
    assert "not remembered" in page_of(tmp_path, source([], activity=[]))


def test_the_command_and_the_handle_write_the_page(real_redis: Redis, tmp_path: Path) -> None:
    cli = CommandLine(real_redis)
    run = cli.completed(4, name=EVIL)
    path = tmp_path / "out.html"
    shown = cli("report", run, "--html", str(path), "--examples", "2")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert f"the report on run {run} is in {path}: it sums up 4 records" in shown.stderr
    page = path.read_text(encoding="utf-8")
    assert "script" not in Seen(page).tags
    assert page.count("<details>") == 2
    assert cli.stage.client.run(run).report(tmp_path / "again.html") == 4
    assert "<details>" not in (tmp_path / "again.html").read_text(encoding="utf-8")


def test_a_page_may_be_written_at_home(
    real_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cli = CommandLine(real_redis)
    run = cli.completed(1)
    cli.stage.client.run(run).report("~/page.html")
    cli.out("report", run, "--html=~/other.html")
    assert {path.name for path in tmp_path.glob("*.html")} == {"page.html", "other.html"}


def test_a_run_is_compared_with_another_on_its_page(real_redis: Redis, tmp_path: Path) -> None:
    cli = CommandLine(real_redis)
    for name, right in (("before", 1), (EVIL, 3)):
        rows = [{"q": f"{SECRET} {n}", "a": "a"} for n in range(4)]
        run = cli.stage.client.submit(
            rows, "{{ q }}", model="sim:fast", name=name, evaluators=[exact_match("a")]
        )
        cli.stage.admit()
        cli.stage.answer(run.id, right, output="a", scores={"exact_match": 1.0})
        cli.stage.answer(run.id, 4 - right, output="b", scores={"exact_match": 0.0})
    path = tmp_path / "report.html"
    cli.out("report", run.id, "--against", "before", "--html", str(path))
    page = path.read_text()
    section = page[page.index('id="against"') :].partition("</section>")[0]
    found = cli.stage.client.run(run.id)
    before = next(each for each in cli.stage.client.runs() if each.name == "before")
    difference = cli.stage.client.run(before.run).compare(found).scores["exact_match"]
    cells = [">0.25<", ">0.75<", ">+0.5<", f">{difference.standard_error:,.2g}<"]
    assert all(each in section for each in cells)
    assert "<script" not in page
    assert SECRET not in page
    assert "Compared with" not in page_of(tmp_path, source([]))


def test_a_refused_run_has_no_report(real_redis: Redis, tmp_path: Path) -> None:
    cli = CommandLine(real_redis)
    run = cli.stage.client.submit([{"q": 1}], prompt="{{ q }}", model="sim:fast").id
    cli.stage.refuse(run, "no such connection")
    assert "no such connection" in cli.refused("report", run, "--html", str(tmp_path / "x.html"))
    assert list(tmp_path.iterdir()) == []


def test_it_shows_times_what_the_cache_answered_and_why_a_score_is_missing(tmp_path: Path) -> None:
    first, *rest = records()
    made = source(
        [replace(first, cached=True, scores={"judge": None}, score_errors={"judge": "said maybe"}), *rest]
    )
    status = replace(made.status, predict=RoleTime(10, 25.0, 5.0), score=RoleTime())
    seen = Seen(page_of(tmp_path, replace(made, status=status), examples=3))
    assert "1 from the cache" in seen.text
    assert "2.5 s" in seen.text
    assert "500 ms" in seen.text
    assert "why judge has no score" in seen.text
    assert "said maybe" in seen.text
