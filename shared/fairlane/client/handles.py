"""Checks of handles and of what their methods take, and the errors that say what to give instead."""

import math
from numbers import Real
from typing import NoReturn

from fairlane.core.errors import SubmissionError


def run_id_of(run: object) -> str:
    """The id of a run, given as an id or as a handle. Raises `SubmissionError` for anything else."""
    found = getattr(run, "id", run)
    if not isinstance(found, str):
        raise SubmissionError("run", run, "is no run", "Give its id, or its handle.")
    return found


def require_handle(run: object, kind: type) -> None:
    """Raise `SubmissionError` where ``run`` is not a handle of that kind."""
    if not isinstance(run, kind):
        raise SubmissionError("other", run, "is no handle of a run", "Give client.run(<id>).")


def check_timeout(timeout: object) -> None:
    """Raise `SubmissionError` for a timeout that is no number of seconds; ``None`` is without end."""
    if timeout is None or (
        isinstance(timeout, Real) and not isinstance(timeout, bool) and not math.isnan(timeout)
    ):
        return
    raise SubmissionError("timeout", timeout, "is no time to wait", "Give seconds, or None to wait on.")


class Unsent:
    """An object that holds connections: pickling or copying it raises ``TypeError`` with what to send."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} holds connections, and is neither pickled nor copied: send a run's id, "
            "and use Client().run(id) there"
        )
