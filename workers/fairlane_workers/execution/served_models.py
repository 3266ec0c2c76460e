"""The models that answered, if the provider names another model than the run requested.

An alias such as "gpt-4o" is served by a version whose name only the answer has. A run keeps each pair of
names once.
"""

from fairlane.core.lru import Lru
from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane.store.keys import served_field

RUNS_KEPT = 1024
MOST_NAMES = 16
"""Most names that a worker adds to a run: a provider may invent any number of them."""

MOST_CHARS = 200


class ServedModels:
    """The names that a worker's reports have added to runs."""

    def __init__(self) -> None:
        self._added = Lru[RunRef, set[str]](RUNS_KEPT)

    def news(self, attempt: Attempt, asked: str, served: str) -> str:
        """The field that a job's report adds to its run; empty if there is nothing to add."""
        if served == asked.partition(":")[2]:
            return ""
        field, added = served_field(asked, served[:MOST_CHARS]), self._added.get(_ref(attempt)) or set()
        return "" if field in added or len(added) >= MOST_NAMES else field

    def added(self, attempt: Attempt, news: str) -> None:
        """Note that a report with this field was in time."""
        self._added.get_or_make(_ref(attempt), set).add(news)


def _ref(attempt: Attempt) -> RunRef:
    return RunRef(attempt.team, attempt.run)
