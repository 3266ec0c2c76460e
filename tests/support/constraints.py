"""What the scripts say limits a lane, as their code names it."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from fairlane.store.write.lanes.lane_view import AXES

_LIB = Path(str(files("fairlane.store") / "lua" / "lib"))
_NAMED = re.compile(r"return '(\w+)',")
_OF_ONE_TEAM = {"team_share"}
"""Limits that team's runs only: test_why_bounds.py checks it."""

_FILES = [*(_LIB / "lane").glob("*.lua"), _LIB / "team" / "reserved_shares.lua"]
LANE_CONSTRAINTS = {
    *AXES,
    *(name for path in _FILES for name in _NAMED.findall(path.read_text(encoding="utf-8"))),
} - _OF_ONE_TEAM
"""The constraints of docs/constraints.md that concern a whole lane."""
