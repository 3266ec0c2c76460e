"""One deployment for all tests that do it no lasting harm; each takes lanes that nobody has used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three workers of 20 slots, one scheduler, teams ``small`` and ``large`` with weights 1 and 3."""
    config = "[teams.small]\nweight = 1\n[teams.large]\nweight = 3\n"
    with cluster(tmp_path_factory.mktemp("deployment"), config=config, workers=3, slots=20) as made:
        yield made
