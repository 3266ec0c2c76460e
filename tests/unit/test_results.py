"""What is stored of a job that is over is read back as it was."""

from __future__ import annotations

import pytest

from fairlane.model.job import JobState, Usage
from fairlane.model.results import JudgeResult, TaskResult


@pytest.mark.parametrize("usage", [Usage(), Usage(10, 5), Usage(None, 5), Usage(10, 5, 7), Usage(10, 5, 0)])
def test_usage_is_stored_as_far_as_it_is_known(usage: Usage) -> None:
    task = TaskResult(JobState.SUCCEEDED, "yes", usage=usage)
    assert TaskResult.from_json(task.to_json()) == task
    judge = JudgeResult(JobState.SUCCEEDED, 1.0, "yes", usage=usage)
    assert JudgeResult.from_json(judge.to_json()) == judge
