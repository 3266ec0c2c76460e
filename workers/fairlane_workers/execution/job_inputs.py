"""The inputs of one attempt: its run, its row, and for an evaluation the output that it judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fairlane.model.run import RunSpec
from fairlane.model.sessions import Session, SessionMembership
from fairlane.model.steps import Step
from fairlane.pipeline.conversation import recalled
from fairlane.pipeline.rendering import Call, RunItem


@dataclass(frozen=True)
class JobInputs:
    """The inputs of one job: its ``item``, or for a session's job its ``session``.

    ``step`` is 0 for a task; ``output`` is the one that an evaluation judges. ``problem`` says what is
    missing: such a job can only fail. ``memory``: values that earlier items stored; set only for serial runs
    that use them. ``membership`` is the place of the item's row in its session; set only if sessions are
    evaluated. ``rendered``: its call, if it was rendered in a child process.
    """

    item: RunItem
    step: int = 0
    output: str | None = None
    session: Session | None = None
    memory: Mapping[bytes, bytes] | None = None
    problem: str | None = None
    membership: SessionMembership | None = None
    rendered: Call | None = None

    @property
    def spec(self) -> RunSpec:
        """The run's spec."""
        return self.item.rendering.spec

    @property
    def evaluation(self) -> Step | None:
        """The evaluation that this job is; ``None`` for a task."""
        if self.session is not None:
            return self.spec.session_evals[self.session.step]
        return self.spec.evals[self.step - 1] if self.step else None

    @cached_property
    def call(self) -> Call:
        """The call to make, rendered on first use. Raises `TemplateError`, or ``ValueError``."""
        if self.rendered is not None:
            return self.rendered
        item = self.item
        if self.session is not None:
            return item.rendering.session(self.spec.session_evals[self.session.step], self.session.turns)
        if self.step:
            return item.rendering.evaluation(self.spec.evals[self.step - 1], item.row, self.output or "")
        names = None
        if self.memory is not None:
            names = recalled(item.rendering, item.cell, item.row, self.memory)
        return item.rendering.task(item.cell, item.row, names)
