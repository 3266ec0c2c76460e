"""What was fed is read from a bitmap, by commands that the users of teams may give."""

from __future__ import annotations

import fakeredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlane.model.run import Order, RunRef
from fairlane.store.keys import Keys
from fairlane.store.read import turn_reading
from fairlane.store.read.reading import RunReader
from fairlane.store.read.turn_reading import TurnReader
from tests.support.deployment import make_spec

REF, KEYS = RunRef("search", "r1"), Keys("test")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(gaps=st.sets(st.integers(0, 60), max_size=5), last=st.integers(0, 60), known=st.integers(0, 60))
def test_the_first_item_that_is_not_fed_and_those_before_an_item(
    monkeypatch: pytest.MonkeyPatch, gaps: set[int], last: int, known: int
) -> None:
    monkeypatch.setattr(turn_reading, "BYTES_AT_ONCE", 2)
    redis = fakeredis.FakeRedis()
    fed = [item for item in range(last) if item not in gaps]
    for item in fed:
        redis.setbit(KEYS.fed(REF), item, 1)
    reader, unfed = TurnReader(redis, KEYS), [item for item in range(100) if item not in fed]
    assert reader.first_unfed(REF) == unfed[0]
    assert reader.first_unfed(REF, min(known, unfed[0])) == unfed[0]
    for item in range(70):
        wanted = None if item in fed else sum(other < item for other in unfed)
        assert reader.unfed_before(REF, item) == wanted


def test_rows_of_a_writer_are_handed_out_up_to_the_first_turn_that_waits() -> None:
    redis = fakeredis.FakeRedis()
    order = Order(turns=True, conversation=True, conversation_field="who")
    spec = make_spec("search", "r1", 10, 0, 0).model_copy(update={"order": order, "repetitions": 2})
    redis.hset(KEYS.state(REF), "cursor", 12)
    for item in (0, 1, 2, 3, 4, *range(10, 17)):
        redis.setbit(KEYS.fed(REF), item, 1)
    assert RunReader(redis, KEYS).handed_rows(REF, spec) == (2, 6)
    serial = spec.model_copy(update={"order": Order(serial=True)})
    assert RunReader(redis, KEYS).handed_rows(REF, serial) == (6, 6)
