"""Numbers on Flower's pages against those of every other view."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fairlane.flower.web
from fairlane.core.figures import dollars, figure, percent
from tests.support.promptfoo import path_with_node

WORDS = Path(fairlane.flower.web.__file__).parent / "static" / "words.js"
NODE = path_with_node()
pytestmark = pytest.mark.skipif(NODE is None, reason="JavaScript needs Node.js")

NUMBERS = (0.0, 1e-7, 0.0000402, 0.05, 0.29, 0.57, 0.9999, 0.99996, 1.0, 1.005, 12.3, 1234.56, 12345.6, 9.8e7)
PLAIN = (0.0, *(each for each in NUMBERS if each > 0.01))
SHARES = (0.0, 0.0001, 0.0004, 0.0006, 0.07, 0.0997, 0.29, 0.57, 0.58, 0.994, 0.9999, 1.0)


def in_javascript(function: str, values: Sequence[Any]) -> list[Any]:
    """The words of each value, as the pages have them."""
    mapped = f"JSON.stringify({json.dumps(values)}.map(words.{function}))"
    program = f"import({json.dumps(WORDS.as_uri())}).then(words => console.log({mapped}))"
    node = shutil.which("node", path=NODE) or "node"
    done = subprocess.run([node, "-e", program], capture_output=True, check=True, text=True)
    return list(json.loads(done.stdout))


def test_a_share_is_rounded_as_everywhere() -> None:
    assert in_javascript("percent", SHARES) == [
        f"{percent(each, places=int(0 < each < 0.0995))} %" for each in SHARES
    ]


def test_money_is_rounded_as_everywhere() -> None:
    assert in_javascript("money", NUMBERS) == list(map(dollars, NUMBERS))


def test_a_score_is_rounded_as_everywhere() -> None:
    scores = [{"mean": each, "standard_error": each / 7} for each in PLAIN]
    assert in_javascript("score", scores) == [f"{figure(each)} ± {figure(each / 7, 2)}" for each in PLAIN]
