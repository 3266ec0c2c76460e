"""No folder has many files, and a short file has a reason to stand alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared/fairlane", "scheduler/fairlane_scheduler", "workers/fairlane_workers")
MOST_FILES = 16
SHORT = 40
"""Lines below which a file needs a reason, as a merge may be simpler for its reader."""

SHARED = "several files use it, and it belongs to none of them"
PROCESS = "a process or a plug-in of another program starts it by its name"
ALONE = "its one job has nothing in common with its neighbours"
REASONS = {
    "shared/fairlane/client/apps.py": SHARED,
    "shared/fairlane/config/modules.py": SHARED,
    "shared/fairlane/core/paths.py": SHARED,
    "workers/fairlane_workers/transport/pause.py": SHARED,
    "shared/fairlane/core/startup.py": SHARED,
    "shared/fairlane/core/version.py": SHARED,
    "shared/fairlane/embedded/private.py": SHARED,
    "shared/fairlane/export/extras.py": SHARED,
    "shared/fairlane/flower/readings/error_words.py": SHARED,
    "shared/fairlane/local/demo/questions.py": SHARED,
    "shared/fairlane/local/joining.py": ALONE,
    "shared/fairlane/testing/fixtures.py": PROCESS,
    "workers/fairlane_workers/app.py": PROCESS,
    "workers/fairlane_workers/execution/served_models.py": ALONE,
    "workers/fairlane_workers/providers/answers/base_resp.py": SHARED,
    "workers/fairlane_workers/providers/answers/echo.py": ALONE,
    "workers/fairlane_workers/providers/framing/event.py": SHARED,
    "workers/fairlane_workers/providers/framing/ndjson.py": SHARED,
}


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def test_no_folder_has_many_files() -> None:
    counts = Counter(path.parent for path in modules())
    full = [folder for folder, count in counts.items() if count > MOST_FILES]
    assert full == [], f"more than {MOST_FILES} files: make a folder of those that serve one purpose"


def test_a_short_file_has_a_reason_to_stand_alone() -> None:
    short = {
        path.relative_to(ROOT).as_posix()
        for path in modules()
        if not path.name.startswith("__") and len(path.read_text(encoding="utf-8").splitlines()) < SHORT
    }
    remedy = f"fewer than {SHORT} lines: merge it with a neighbour, or give its reason in REASONS"
    assert short - set(REASONS) == set(), remedy
    assert set(REASONS) - short == set(), f"take it out of REASONS: it has {SHORT} lines now, or is gone"
