"""Compiles a submitted run's templates in a child process. A tick asks for the result, and never waits."""

from collections.abc import Mapping
from typing import Final

from fairlane.core.errors import CutOff, NoChild, WorkRaised
from fairlane.core.events import Event
from fairlane.model.run import Plan, RunRef
from fairlane.sandbox.pieces import CompileTemplates
from fairlane.sandbox.pool import Pool
from fairlane.telemetry.logs import get_logger

LOOK_MS: Final = 5
"""Milliseconds until a child is asked again whether it has compiled them."""

NO_CHILD_MS: Final = 1_000
"""The same if no child could be started."""

log = get_logger("receiver")


class RequestAwaited(Exception):
    """A request must be tried again in ``wait_ms``.

    A child compiles its templates, more of its pages must be measured, or its run is damaged.
    """

    def __init__(self, wait_ms: int) -> None:
        super().__init__()
        self.wait_ms = wait_ms


class TemplateCheck:
    """The templates of one submitted run, while a child compiles them."""

    def __init__(self, pool: Pool, plan: Plan, markup: Mapping[str, str]) -> None:
        """``markup``: texts by field, as `Rendering.markup` gives them."""
        self.plan = plan
        self._pool, self._piece = pool, CompileTemplates(markup)
        self._asked = pool.submit(plan.spec.team, self._piece)

    def concerns(self, ref: RunRef) -> bool:
        """Whether it is about this run."""
        return RunRef(self.plan.spec.team, self.plan.spec.run) == ref

    def wait_ms(self) -> int:
        """Milliseconds until the next call; 0 if `result` is known. If no child could be started, it submits
        the templates again.
        """
        if not self._asked.done():
            return LOOK_MS
        error = self._asked.exception()
        if not isinstance(error, NoChild):
            return 0
        spec = self.plan.spec
        log.warning(Event.TEMPLATES_UNCHECKED, run=spec.run, team=spec.team, error=str(error))
        self._asked = self._pool.submit(spec.team, self._piece)
        return NO_CHILD_MS

    def result(self) -> Plan:
        """The plan, if all templates compile. Raises `TemplateError` or ``ValueError``."""
        try:
            self._asked.result()
        except (CutOff, WorkRaised) as error:
            raise ValueError(str(error)) from error
        return self.plan

    def drop(self) -> None:
        """Cancel the check."""
        self._asked.cancel()
