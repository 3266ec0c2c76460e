"""promptfoo's own command for tests: pinned, from npm, in pytest's cache."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlane.config.environment import process_environment
from tests.support.npm import install

VERSION = "0.121.20"
EVAL_S = 180

QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "true",
    "PROMPTFOO_SELF_HOSTED": "1",
}


@dataclass(frozen=True, slots=True)
class Promptfoo:
    """The command, and the folder where it keeps what it keeps."""

    program: Path
    home: Path

    def evaluate(
        self, config: Path, environment: Mapping[str, str], *options: str, write: bool = False
    ) -> list[dict[str, Any]]:
        """Its results, by prompt and test. Fails the test if it writes none.

        With extensions it has results only if it may ``write`` them into its database.
        """
        output = config.with_name("promptfoo-output.json")
        flags = ("--no-cache", "--no-progress-bar", "--no-table", *(() if write else ("--no-write",)))
        ended = subprocess.run(
            [self.program, "eval", "-c", config, "-o", output, *flags, *options],
            cwd=config.parent,
            env={**process_environment(), **QUIET, **environment, "PROMPTFOO_CONFIG_DIR": str(self.home)},
            capture_output=True,
            text=True,
            timeout=EVAL_S,
            check=False,
        )
        assert output.exists(), ended.stdout + ended.stderr
        results: list[dict[str, Any]] = json.loads(output.read_text())["results"]["results"]
        return sorted(results, key=lambda each: (each["promptIdx"], each["testIdx"]))


def find_promptfoo(cache: Path, home: Path) -> Promptfoo:
    """The command, installed with npm where it is not there yet. Skips the test where npm cannot do that.

    It skips on CI, too: with what it needs, promptfoo takes more than a gigabyte.
    """
    modules = install(cache / f"promptfoo-{VERSION}", f"promptfoo@{VERSION}")
    return Promptfoo(modules / ".bin" / "promptfoo", home)
