"""Generated sequences of users, operators, providers and faults, on real processes: no promise is broken."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.faults.deployment import Deployment, deployed
from tests.faults.generated import play_generated

pytestmark = pytest.mark.chaos

SEED_BITS, FIXED = 31, 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One deployment for all sequences of this file."""
    with deployed(tmp_path_factory.mktemp("generated")) as made:
        yield made


@pytest.mark.parametrize("seed", [FIXED, None])
def test_a_generated_sequence_breaks_no_promise(whole: Deployment, seed: int | None) -> None:
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    print(f"Again with: python -m tests.faults.generated {seed}")
    violations = play_generated(whole, seed)
    assert not violations, "\n".join(map(str, violations))
