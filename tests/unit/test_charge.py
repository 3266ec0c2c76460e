"""What a provider charges for a call, by how it counts. `tests/lua/test_tokens.py` holds the script to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.tokens import Estimate, Usage
from tests.support.charges import ChargeModel, charged

counts = st.integers(0, 10**6)
usages = st.builds(Usage, st.none() | counts, st.none() | counts, st.none() | counts)
estimates = st.builds(Estimate, counts, counts, counts, st.booleans())
models = st.builds(
    ChargeModel,
    st.sampled_from(["used", "reserved"]),
    st.floats(0.01, 100),
    st.sampled_from(["free", "counted"]),
)


@pytest.mark.parametrize(
    ("model", "usage", "expected"),
    [
        (ChargeModel(), Usage(90, 20), (90, 20)),
        (ChargeModel(), Usage(90, 20, 60), (30, 20)),
        (ChargeModel(cache_reads="counted"), Usage(90, 20, 60), (90, 20)),
        (ChargeModel(output_factor=5), Usage(90, 20), (90, 100)),
        (ChargeModel(output_factor=1.5), Usage(90, 3), (90, 5)),
        (ChargeModel("reserved"), Usage(90, 20), (90, 50)),
        (ChargeModel("reserved"), Usage(90, 70), (90, 70)),
        (ChargeModel("reserved", 5), Usage(90, 11), (90, 55)),
        (ChargeModel(), Usage(None, 20), (100, 20)),
        (ChargeModel(), Usage(90, None), (90, 50)),
        (ChargeModel(), Usage(), (100, 50)),
        (ChargeModel(), Usage(90, 20, 95), (0, 20)),
    ],
)
def test_a_call_costs_what_its_provider_charges(
    model: ChargeModel, usage: Usage, expected: tuple[int, int]
) -> None:
    assert charged(usage, Estimate(100, 50), model) == Estimate(*expected)


@given(usages, estimates, models)
def test_a_charge_is_of_whole_tokens_and_never_negative(
    usage: Usage, reserved: Estimate, model: ChargeModel
) -> None:
    cost = charged(usage, reserved, model)
    assert {type(part) for part in cost[:2]} == {int}
    assert min(cost[:2]) >= 0


@given(estimates, models)
def test_without_reported_usage_the_reservation_is_charged(reserved: Estimate, model: ChargeModel) -> None:
    assert charged(Usage(), reserved, model) == reserved


@given(usages, estimates, models)
def test_a_reservation_is_never_charged_less_output_than_it_took(
    usage: Usage, reserved: Estimate, model: ChargeModel
) -> None:
    cost = charged(usage, reserved, ChargeModel("reserved", model.output_factor, model.cache_reads))
    assert cost.output >= max(reserved.output, charged(usage, reserved, model).output)


@given(counts, counts, counts, estimates, models)
def test_what_is_read_from_a_cache_costs_at_most_as_much(
    prompt: int, answer: int, cached: int, reserved: Estimate, model: ChargeModel
) -> None:
    cold, warm = Usage(prompt, answer), Usage(prompt, answer, min(cached, prompt))
    assert charged(warm, reserved, model).total <= charged(cold, reserved, model).total
