"""Which functions a worker finds: those that are defined in modules its operator allows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from celery import Celery

from fairlane.config.modules import search_here
from fairlane.core.errors import FunctionNotFound
from fairlane_workers.functions.catalog import (
    AppTasks,
    ImportedFunctions,
    claims,
)
from tests.support import user_functions

HERE = "tests.support.user_functions"


@pytest.mark.parametrize("allowed", [HERE, "tests.support", "tests"])
def test_a_module_allows_itself_and_what_is_below_it(allowed: str) -> None:
    assert ImportedFunctions([allowed]).find(f"{HERE}:shout") is user_functions.shout


@pytest.mark.parametrize("allowed", [[], ["tests.supp"], ["tests.support.user_functions_2"], ["os"]])
def test_a_module_that_is_not_allowed_is_not_imported(allowed: list[str]) -> None:
    missing = f"module '{HERE}' is not in worker.modules of this worker"

    with pytest.raises(FunctionNotFound, match=missing) as refused:
        ImportedFunctions(allowed).find(f"{HERE}:shout")
    assert not refused.value.claimed


def test_what_an_allowed_module_has_merely_imported_is_out_of_reach() -> None:
    with pytest.raises(FunctionNotFound, match=r"defined elsewhere: module '\w+' is not in worker\.modules"):
        ImportedFunctions(["tests"]).find(f"{HERE}:system")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (f"{HERE}:nothing", "has no 'nothing'"),
        (f"{HERE}:told_once", "is a set, not a function"),
        ("tests.support.there_is_none:f", "cannot be imported: ModuleNotFoundError"),
        ("shout", "names no function"),
        ("tests.support:user_functions.shout", "names no function"),
        ("tests/../os:system", "names no function"),
    ],
)
def test_what_is_no_function_is_reported_by_name(name: str, shown: str) -> None:
    with pytest.raises(FunctionNotFound, match=shown):
        ImportedFunctions(["tests"]).find(name)


def test_a_module_is_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counted_module.py").write_text("import sys\nsys.counted = sys.counted + 1\ndef f(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "counted", 0, raising=False)
    found = ImportedFunctions(["counted_module"])

    assert found.find("counted_module:f") is found.find("counted_module:f")

    assert sys.counted == 1  # type: ignore[attr-defined]
    del sys.modules["counted_module"]


def test_a_module_of_the_workers_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_folder.py").write_text("def f(): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    search_here()

    assert ImportedFunctions(["module_of_folder"]).find("module_of_folder:f").__name__ == "f"
    assert sys.path[-1] == str(tmp_path)
    del sys.modules["module_of_folder"]


def test_a_celery_task_is_found_by_its_dotted_name() -> None:
    assert ImportedFunctions([HERE]).find(f"{HERE}.add") == user_functions.add


def test_an_applications_tasks_are_found_by_the_names_they_are_registered_under() -> None:
    tasks = AppTasks(user_functions.app)

    assert tasks.find(f"{HERE}.add").name == f"{HERE}.add"  # type: ignore[attr-defined]
    assert tasks.find(f"{HERE}:add").name == f"{HERE}.add"  # type: ignore[attr-defined]
    assert tasks.names() == (f"{HERE}.add",)


@pytest.mark.parametrize("name", ["nothing", "celery.backend_cleanup", f"{HERE}.shout"])
def test_an_applications_other_names_are_not_found(name: str) -> None:
    with pytest.raises(FunctionNotFound, match="has no task"):
        AppTasks(user_functions.app).find(name)


def test_a_worker_claims_what_is_in_its_modules_and_the_very_tasks_it_has() -> None:
    app = Celery("test", set_as_current=False)

    @app.task(shared=False, name="fetch")
    def fetch() -> None: ...

    assert claims(["crm.tasks"], "crm.tasks:any")
    assert claims(["crm.tasks"], "crm.tasks.mail.send")
    assert not claims(["crm.tasks"], "crm.tasks2:any")
    assert claims(AppTasks(app).names(), "fetch")
    assert not claims(AppTasks(app).names(), "fetch_all")


@pytest.mark.parametrize("raised", ["KeyboardInterrupt()", "__import__('asyncio').CancelledError()"])
def test_whatever_a_module_raises_at_its_import_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    (tmp_path / "raising_module.py").write_text(f"raise {raised}\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(FunctionNotFound, match=r"cannot be imported: (KeyboardInterrupt|CancelledError)"):
        ImportedFunctions(["raising_module"]).find("raising_module:f")
