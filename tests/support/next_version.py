"""The version after this one: a copy of the packages that writes more than this one knows.

It runs as processes of its own, with the copy in front of ``PYTHONPATH``. What is changed is text that must
be there, so that a copy is never the present version by mistake.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fairlane.store.script import Script, load

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared/fairlane", "scheduler/fairlane_scheduler", "workers/fairlane_workers")
LUA = "shared/fairlane/store/lua"
VERSION = "99.0.0"

_FIELD = '    tomorrow: str = "more"\n'

# What the next version adds wherever something is written that another process reads: a file, a text in it,
# and what stands there then.
MORE: tuple[tuple[str, str, str], ...] = (
    ("shared/fairlane/version.py", 'version("fairlane")', f'"{VERSION}"'),
    ("shared/fairlane/job.py", '"lane": self.lane,\n', '"lane": self.lane,\n"tomorrow": {"a": [1]},\n'),
    ("shared/fairlane/store/workers.py", "    drained: bool", f"{_FIELD}    drained: bool"),
    ("shared/fairlane/run.py", "    submitted_ms: int = Field(ge=0)\n", f"    submitted_ms: int\n{_FIELD}"),
    ("shared/fairlane/run.py", "    eval_lanes: tuple", f"{_FIELD}    eval_lanes: tuple"),
    ("shared/fairlane/retry.py", "    max_rate_limits: int", f"{_FIELD}    max_rate_limits: int"),
    ("shared/fairlane/choices.py", "    delay: float = Field(", f"{_FIELD}    delay: float = Field("),
    ("shared/fairlane/results.py", '"s": self.state,\n', '"s": self.state,\n"tomorrow": 1,\n'),
    ("shared/fairlane/store/inbox.py", '{"op": op,', '{"tomorrow": 1, "op": op,'),
    ("shared/fairlane/store/entry.py", "{self.kind}", "{self.kind}:7"),
    (f"{LUA}/lib/entry.lua", "whole(lease.kind) }", "whole(lease.kind), 7 }"),
    (f"{LUA}/lib/tried.lua", "whole(limited), handle }",
     "whole(limited), handle or '', 7 }"),
    (f"{LUA}/lib/permit.lua", "  lease.number = number + 1\n", "  lease.number = number + 1\n"
     "  lease.tomorrow = { 1 }\n"),
    (f"{LUA}/lib/lease.lua", "function release(lease, id)\n", "function release(lease, id)\n"
     "  redis.call('HSET', KEY.lane, 'tomorrow', 'more')\n"),
    (f"{LUA}/attempt_defer.lua", "\nleave(lease)\n", "\nleave(lease)\n"
     "redis.call('HSET', KEY.state, 'tomorrow', 'more')\n"),
)  # fmt: skip

LATER_MESSAGES = ("shared/fairlane/job.py", "MESSAGE_VERSION = 1", "MESSAGE_VERSION = 2")
LATER_SPECS = ("shared/fairlane/run.py", "SPEC_VERSION = 1", "SPEC_VERSION = 2")


@dataclass(frozen=True, slots=True)
class NextVersion:
    """A copy that is there."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes a Python process one of that version."""
        return {"PYTHONPATH": ":".join(str((self.folder / each).parent) for each in PACKAGES)}

    def script(self, name: str) -> Script:
        """A verb of that version."""
        return load(self.folder / LUA, name)


def make_next_version(folder: Path, *changes: tuple[str, str, str]) -> NextVersion:
    """Copy the packages, with `MORE` and further changes. Fails where a text to be changed is not there."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, other in (*MORE, *changes):
        path = folder / file
        present = path.read_text(encoding="utf-8")
        assert text in present, f"{file} has no {text!r}: what the next version adds belongs elsewhere"
        path.write_text(present.replace(text, other, 1), encoding="utf-8")
    return NextVersion(folder)
