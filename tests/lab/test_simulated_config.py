"""The simulator's configuration reads TOML, and its errors name field, value and remedy."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from fairlane.core.errors import ConfigurationError
from fairlane.lab.rehearsal.scenario import Scenario
from fairlane.testing import Faults, SimulatedModel, SimulatorConfig

TOML = """
seed = 4
api_key = "sk-simulated"

[models.fast]
requests_per_minute = 3000
latency_ms = 500
latency_sigma = 0.4
burst_429 = [[1.5, 2]]
outages = [[10, 5], [30, 1]]
status_always = "insufficient_quota"

[models.fast.faults]
error_500 = 0.02

[models.solver]
output = "answers"
answers_file = "answers.jsonl"
accuracy = 0.8
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "simulator.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_toml_can_set_every_field(tmp_path: Path) -> None:
    config = SimulatorConfig.from_toml(written(tmp_path, TOML))
    assert config.seed == 4
    assert config.models["fast"] == SimulatedModel(
        requests_per_minute=3000,
        latency_ms=500,
        latency_sigma=0.4,
        burst_429=((1.5, 2),),
        outages=((10, 5), (30, 1)),
        status_always="insufficient_quota",
        faults=Faults(error_500=0.02),
    )


def test_toml_can_set_every_shape_of_a_limit(tmp_path: Path) -> None:
    text = """
    [models.fast]
    requests_per_minute = 600
    input_tokens_per_minute = 1000
    output_tokens_per_minute = 500
    requests_per_day = 14400
    shape = "second"
    token_shape = "window"
    window_seconds = 10
    token_window_seconds = 60
    limit_changes = [[60, 300], [120, 900.5]]
    foreign = [[30, 60, 100]]
    foreign_tokens = 20
    acceleration = 1.5
    acceleration_floor = 50
    shrink_on_overrun = 0.5
    max_concurrency = 4
    queue = 8
    concurrency_status = 503
    header_style = "azure"
    """
    assert SimulatorConfig.from_toml(written(tmp_path, text)).models["fast"] == SimulatedModel(
        requests_per_minute=600,
        input_tokens_per_minute=1000,
        output_tokens_per_minute=500,
        requests_per_day=14400,
        shape="second",
        token_shape="window",
        window_seconds=10,
        token_window_seconds=60,
        limit_changes=((60, 300), (120, 900.5)),
        foreign=((30, 60, 100),),
        foreign_tokens=20,
        acceleration=1.5,
        acceleration_floor=50,
        shrink_on_overrun=0.5,
        max_concurrency=4,
        queue=8,
        concurrency_status=503,
        header_style="azure",
    )


def test_a_relative_answers_file_lies_beside_the_toml_file(tmp_path: Path) -> None:
    config = SimulatorConfig.from_toml(written(tmp_path, TOML))
    assert config.models["solver"].answers_file == tmp_path / "answers.jsonl"


def test_the_key_is_not_shown(tmp_path: Path) -> None:
    assert "sk-simulated" not in repr(SimulatorConfig.from_toml(written(tmp_path, TOML)))


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("[models.fast]\nlatency = 3", "models.fast.latency", "latency_ms"),
        ("[models.fast.faults]\nerror_501 = 0.1", "models.fast.faults.error_501", "error_50"),
        ("sead = 3\n[models.fast]", "sead", "seed"),
        ("[models.fast]\nwholly_unknown = 1", "models.fast.wholly_unknown", "requests_per_minute"),
    ],
)
def test_the_error_for_an_unknown_key_suggests_a_known_one(
    tmp_path: Path, text: str, field: str, remedy: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SimulatorConfig.from_toml(written(tmp_path, text))
    assert caught.value.field == field
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "models"),
        ("models = 3", "models"),
        ("[models]", "models"),
        ("[models.fast]\nrequests_per_minute = 0", "models.fast.requests_per_minute"),
        ("[models.fast]\noutages = [[1, 0]]", "models.fast.outages.0.1"),
        ("[models.fast]\nstatus_always = 200", "models.fast.status_always.constrained-int"),
        ("[models.fast.faults]\nhang = 1.5", "models.fast.faults.hang"),
        ("[models.fast.faults]\nhang = 0.6\nreset = 0.6", "models.fast.faults"),
        ("[models.fast]\nanswers_file = 'a.jsonl'", "models.fast"),
        ("[models.fast]\nshape = 'round'", "models.fast.shape"),
        ("[models.fast]\nqueue = 3", "models.fast"),
        ("[models.fast]\nlimit_changes = [[1, 5]]", "models.fast"),
        ("[models.fast]\nrequests_per_minute = 5\nlimit_changes = [[2, 5], [1, 5]]", "models.fast"),
        ("[models.fast]\nshrink_on_overrun = 1", "models.fast.shrink_on_overrun"),
        ("[models.fast]\nforeign = [[0, 1, 0]]", "models.fast.foreign.0.2"),
        ("not toml", "simulator config"),
    ],
)
def test_the_error_for_a_wrong_value_names_its_field(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SimulatorConfig.from_toml(written(tmp_path, text))
    assert caught.value.field == field


def test_the_error_for_a_wrong_api_key_does_not_show_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SimulatorConfig.from_toml(written(tmp_path, "api_key = 12345\n[models.fast]"))
    assert "12345" not in str(caught.value)


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        SimulatorConfig.from_toml(tmp_path / "nowhere.toml")


def test_unknown_fields_are_rejected_in_python_too() -> None:
    with pytest.raises(ValidationError):
        SimulatedModel.model_validate({"rpm": 3})


@pytest.mark.parametrize("model", [SimulatorConfig, Scenario])
def test_each_number_has_a_least_and_a_most(model: type[BaseModel]) -> None:
    unbounded, schema = list[str](), model.model_json_schema()

    def look(place: str, part: object) -> None:
        if isinstance(part, list):
            for each in part:
                look(place, each)
        if not isinstance(part, dict):
            return
        if part.get("type") in ("integer", "number") and "enum" not in part:
            low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
            if not (low & part.keys() and high & part.keys()):
                unbounded.append(place)
        for name, each in part.items():
            if name not in ("default", "enum"):
                look(name if name in part.get("properties", {}) else f"{place}.{name}", each)

    look(model.__name__, schema)
    assert not unbounded


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("requests_per_minute = 1e300", "Give 1,000,000,000 or less."),
        ("latency_ms = inf", "Give 86,400,000 or less."),
        ("max_output_tokens = 10000000000", "Give 1,000,000 or less."),
        ("limit_changes = [[1e200, 60]]", "Give 1,000,000,000 or less."),
    ],
)
def test_an_absurd_number_is_refused_with_its_most(tmp_path: Path, setting: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SimulatorConfig.from_toml(written(tmp_path, f"[models.m]\n{setting}"))
    assert refused.value.remedy == remedy
    assert setting.partition(" ")[0] in refused.value.field
