"""Fresh schedules of faults on real processes: whatever happens, every promise holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.faults.schedule import draw
from tests.faults.session import Session

pytestmark = pytest.mark.chaos

SCHEDULES, SEED_BITS = 3, 31
PLAYS, STILL_S = 3, 0.5
"""A play in which the machine stood still for so long is played again: workers were silent without faults."""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """One deployment for all schedules of this file."""
    with Session() as made:
        yield made


@pytest.mark.parametrize("number", range(SCHEDULES))
def test_a_fresh_schedule_of_faults_breaks_no_promise(number: int, session: Session) -> None:
    schedule = draw(secrets.randbits(SEED_BITS))
    line = f'python -m tests.faults --schedules 1 --schedule "{schedule}"'
    print(f"Played {number + 1} of {SCHEDULES}; again with: {line}")
    for _ in range(PLAYS):
        history, violations = session.play(schedule)
        if not violations or history.stalled_s < STILL_S:
            break
    assert not violations, "\n".join([line, *map(str, violations)])
