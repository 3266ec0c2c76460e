"""What holds for every test: nothing from outside decides how it goes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings as hypothesis_settings

from fairlane.configuration import process_environment

pytest_plugins = ["tests.support.redis"]

# How long one example takes depends on what else the machine does; pytest's timeout catches what hangs.
hypothesis_settings.register_profile("fairlane", deadline=None)
hypothesis_settings.load_profile("fairlane")

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_configuration_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in process_environment() if name.startswith("FAIRLANE_")]:
            patch.delenv(variable)
        yield
