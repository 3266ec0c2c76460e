"""Our Celery applications use the settings of Fairlane, whatever the environment says to others."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.app import make_app
from fairlane.config.settings import Settings

OURS, THEIRS = "redis://ours.invalid:6379/0", "redis://theirs.invalid:6379/0"
VARIABLES = {
    "CELERY_BROKER_URL": THEIRS,
    "CELERY_BROKER_READ_URL": THEIRS,
    "CELERY_BROKER_WRITE_URL": THEIRS,
    "CELERY_RESULT_BACKEND": THEIRS,
    "CELERY_CONFIG_MODULE": "their_settings",
    "CELERY_LOADER": "their_loader:Loader",
    "DJANGO_SETTINGS_MODULE": "their_project.settings",
}


def application() -> Any:
    return make_app(Settings.model_validate({"redis": {"url": OURS}}), "test")


@pytest.mark.parametrize("variable", VARIABLES)
def test_no_variable_of_celery_or_django_changes_the_application(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, VARIABLES[variable])

    app = application()

    urls = [app.conf.broker_url, app.conf.broker_read_url, app.conf.broker_write_url]
    connections = [app.connection(), app.connection_for_read(), app.connection_for_write()]
    assert urls == [OURS] * 3
    assert {each.hostname for each in connections} == {"ours.invalid"}
    assert (app.conf.result_backend, app.conf.task_acks_late) == (None, True)
    assert not app.fixups


def test_settings_may_still_be_changed_before_and_after_their_first_use() -> None:
    app = application()
    app.conf.worker_pool = "solo"
    assert app.conf.worker_pool == "solo"

    app.conf.worker_concurrency = 7
    assert app.conf.worker_concurrency == 7
