"""Runs commands in this process, against a deployment in which the test plays scheduler and workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from redis import Redis
from typer.testing import CliRunner, Result

from fairlane.cli.main import app
from tests.support.stage import Stage


class CommandLine:
    """Runs commands for one team on the server of the client ``redis``."""

    def __init__(self, redis: Redis, team: str = "search") -> None:
        path = redis.connection_pool.connection_kwargs["path"]
        self.environment = {
            "FAIRLANE_REDIS__URL": f"unix://{path}?db=0",
            "FAIRLANE_REDIS__DEPLOYMENT": "test",
            "FAIRLANE_TEAM": team,
            "COLUMNS": "80",
        }
        self.stage = Stage(redis, team)

    def __call__(self, *arguments: str, input: str | None = None) -> Result:
        """The result of one command, with any exit code."""
        return CliRunner().invoke(app, list(arguments), env=self.environment, input=input)

    def out(self, *arguments: str) -> str:
        """The standard output of a command that must succeed."""
        result = self(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        """The JSON document that a command prints with ``--json``."""
        return json.loads(self.out(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1) -> str:
        """The error message of a command that must fail with ``code`` and print nothing else."""
        result = self(*arguments)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        return result.stderr

    def submitted(self, rows: int = 5, **arguments: Any) -> str:
        """The id of a new run that is admitted and whose items are all queued."""
        dataset: Sequence[dict[str, Any]] = [{"question": f"q{n}"} for n in range(rows)]
        asked: dict[str, Any] = {"prompt": "{{ question }}", "model": "sim:fast"} | arguments
        run = self.stage.client.submit(dataset, **asked)
        self.stage.admit()
        return run.id

    def completed(self, rows: int = 5, **arguments: Any) -> str:
        """The id of a new run whose items have all succeeded."""
        run = self.submitted(rows, **arguments)
        if rows:
            self.stage.answer(run, rows)
        return run
