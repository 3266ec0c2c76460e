"""One deployment for all tests that do it no lasting harm; each takes lanes that nobody has used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, cluster

MODELS = 80

ModelMaker = Callable[..., str]
"""Takes fields of `SimulatedModel`; the new model's name."""


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three workers of 20 slots, one scheduler, teams ``small`` and ``large`` with weights 1 and 3."""
    directory = tmp_path_factory.mktemp("deployment")
    models = {f"m{number}": SimulatedModel() for number in range(MODELS)}
    config = "[teams.small]\nweight = 1\n[teams.large]\nweight = 3\n"
    with cluster(directory, models, config=config, workers=3, slots=20) as made:
        yield made


@pytest.fixture(scope="session")
def new_model(deployment: Cluster) -> ModelMaker:
    """Makes a model with a lane of its own."""
    numbers = count()

    def make(**behaviour: Any) -> str:
        name = f"m{next(numbers)}"
        deployment.provider.change_model(name, **behaviour)
        return name

    return make
