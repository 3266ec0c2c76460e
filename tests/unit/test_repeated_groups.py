r"""Python before 3.11.5 keeps what a failed round of ``(?:…)*+`` has read; ``(?>(?:…)*)`` is right.

See gh-106052. Debian 12 has 3.11.2. There ``numeric_match`` never ended on "5 k".
"""

from __future__ import annotations

import re

import pytest

from tests.support.documents import ROOT

SOURCES = [path for part in ("shared", "scheduler", "workers") for path in (ROOT / part).rglob("*.py")]
_POSSESSIVE_GROUP = re.compile(r"(?<!\()(?:\)|_ARGUMENT\})(?:[*+?]|\{+\d*,?\d*\}+)\+")
OF_JSON = {"admission.py", "json_answers.py"}
"""They read each byte of long texts, at half the cost. A round that fails there has read one backslash,
at the text's end or before what matches nothing: that changes no result."""


@pytest.mark.parametrize("pattern", [r"(?:ab?c)*+", r"(a|b)++", r"(?:a)?+", r"(?:a){2,3}+", r"{_ARGUMENT}++"])
def test_a_possessive_group_is_found(pattern: str) -> None:
    assert _POSSESSIVE_GROUP.search(pattern)


def test_no_group_is_repeated_possessively() -> None:
    found = {path.name for path in SOURCES if _POSSESSIVE_GROUP.search(path.read_text(encoding="utf-8"))}
    assert found == OF_JSON
