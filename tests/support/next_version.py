"""A simulated next version: a copy of the packages that writes fields which this version does not know.

It runs in separate processes, with the copy first in ``PYTHONPATH``. Each change replaces a text that must
exist, so that no copy is the same as this version by mistake.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fairlane.store.script import Script
from fairlane.store.verbs import load

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared/fairlane", "scheduler/fairlane_scheduler", "workers/fairlane_workers")
LUA = "shared/fairlane/store/lua"
VERSION = "99.0.0"

_FIELD = '    tomorrow: str = "more"\n'

# Additions wherever the code writes data that another process reads: file, text to replace, replacement.
MORE: tuple[tuple[str, str, str], ...] = (
    ("shared/fairlane/core/version.py", 'version("fairlane")', f'"{VERSION}"'),
    ("shared/fairlane/model/job.py", '"lane": self.lane,\n', '"lane": self.lane,\n"tomorrow": {"a": [1]},\n'),
    ("shared/fairlane/store/write/workers.py", "    drained: bool", f"{_FIELD}    drained: bool"),
    (
        "shared/fairlane/model/run.py",
        "    submitted_ms: int = Field(ge=0, le=LATEST_MS)\n",
        f"    submitted_ms: int\n{_FIELD}",
    ),
    ("shared/fairlane/model/run.py", "    eval_lanes: tuple", f"{_FIELD}    eval_lanes: tuple"),
    ("shared/fairlane/model/decision.py", "    max_rate_limits: int", f"{_FIELD}    max_rate_limits: int"),
    ("shared/fairlane/model/run.py", "    delay: float = Field(", f"{_FIELD}    delay: float = Field("),
    ("shared/fairlane/model/results.py", '"s": self.state,\n', '"s": self.state,\n"tomorrow": 1,\n'),
    ("shared/fairlane/model/results.py", "return _dumped([*places, *optional, more])",
     'return _dumped([*places, *optional, more | {"tomorrow": 1}, "tomorrow"])'),
    ("shared/fairlane/store/write/runs/inbox.py", '{"op": op,', '{"tomorrow": 1, "op": op,'),
    ("shared/fairlane/model/tokens.py",
     '{tokens.guessed:d}" if tokens.most_input or tokens.guessed else text',
     '{tokens.guessed:d}:7"'),
    (f"{LUA}/lib/job/entry.lua",
     "  if most > 0 or guessed > 0 then numbers[5], numbers[6] = most, guessed end\n",
     "  numbers[5], numbers[6], numbers[7] = most, guessed, 7\n"),
    (f"{LUA}/lib/job/attempt_counts.lua", "  return table.concat(parts",
     "  if #parts > 4 then parts[14], parts[15] = parts[14] or '0', '7' end\n"
     "  return table.concat(parts"),
    (f"{LUA}/lib/lane/new_lease.lua", "  lease.number = spent.number\n", "  lease.number = spent.number\n"
     "  lease.tomorrow = { 1 }\n"),
    (f"{LUA}/lib/lane/lease.lua", "function release_lease(lease, id, row, awaited)\n",
     "function release_lease(lease, id, row, awaited)\n"
     "  redis.call('HSET', KEY.lane, 'tomorrow', 'more')\n"),
    (f"{LUA}/verbs/job/attempt_defer.lua", "\nlocal again = ", "\n"
     "redis.call('HSET', KEY.state, 'tomorrow', 'more')\n"
     "local again = "),
)  # fmt: skip

LATER_MESSAGES = ("shared/fairlane/model/job.py", "MESSAGE_VERSION = 1", "MESSAGE_VERSION = 2")
LATER_SPECS = (
    ("shared/fairlane/model/choices.py", "SPEC_VERSION = 5", "SPEC_VERSION = 6"),
    ("shared/fairlane/model/run.py", "version: int = Field(default=1,", "version: int = Field(default=6,"),
)


@dataclass(frozen=True, slots=True)
class NextVersion:
    """A copy of the packages in a directory."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which a Python process runs that version."""
        return {"PYTHONPATH": ":".join(str((self.folder / each).parent) for each in PACKAGES)}

    def script(self, name: str) -> Script:
        """A verb's script in that version. Raises ``KeyError`` for a verb that it lacks."""
        return load(self.folder / LUA, name)


def make_next_version(folder: Path, *changes: tuple[str, str, str]) -> NextVersion:
    """Copy the packages with `MORE` and further changes. Fails if a text to replace is missing."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, other in (*MORE, *changes):
        path = folder / file
        present = path.read_text(encoding="utf-8")
        assert text in present, f"{file} has no {text!r}: what the next version adds belongs elsewhere"
        path.write_text(present.replace(text, other, 1), encoding="utf-8")
    return NextVersion(folder)


def other_version(folder: Path, commit: str) -> NextVersion:
    """The packages as a commit of this repository has them."""
    packed = folder / "packages.tar"
    command = ["git", "archive", "-o", str(packed), commit, *PACKAGES]
    subprocess.run(command, cwd=ROOT, check=True)
    shutil.unpack_archive(packed, folder, filter="data")
    return NextVersion(folder)
