"""One deployment for all tests that do it no lasting harm; each takes lanes that nobody has used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, cluster

ODD_MODEL = "org/mödel-1|x:free *[y]"
"""A name with all that some provider, broker or pattern might take for something else."""


SHARED = '[connections.shared]\nprotocol = "openai"\nbase_url = "{base_url}"\nlane_scope = "connection"\n'


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of 30 slots, one scheduler, and teams ``small`` and ``large`` with weights 1 and 3.

    Team ``bounded`` takes a fifth of a lane at most. All models of the connection ``shared`` have one lane.
    """
    config = (
        f"{SHARED}[teams.small]\nweight = 1\n[teams.large]\nweight = 3\n[teams.bounded]\nmax_percent = 20\n"
    )
    directory, models = tmp_path_factory.mktemp("deployment"), {ODD_MODEL: SimulatedModel()}
    with cluster(directory, models, config=config, workers=2, slots=30) as made:
        yield made
