"""Items that are about to be fed, and the batch that they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlane.model.ending import Completion, ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.tokens import Entry
from fairlane.pipeline.rendering import Call, RunItem


@dataclass(slots=True)
class FeedBatch:
    """A batch of placed items, as ``run_feed`` takes it.

    ``entries``: jobs to queue, by lane. ``recorded``: jobs that end without a call. ``items``: how many items
    are fed with it. ``memory``: outputs that later items read. ``sessions``: session completions by item.
    """

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    recorded: list[RecordedJob] = field(default_factory=list)
    items: int = 0
    memory: dict[str, str] = field(default_factory=dict)
    sessions: dict[int, SessionCompletion] = field(default_factory=dict)

    def add(self, item: RunItem, completion: Completion) -> None:
        """Record an item's task; record or queue its evaluations."""
        task = RecordedJob(item.job(0), completion.state, completion.payload, "")
        self.recorded.append(task if item.spec.calls_tasks else task._replace(state="given"))
        for job in completion.follow:
            if isinstance(job, ReadyJob):
                self.entries.setdefault(job.lane, []).append(job.entry)
            else:
                self.recorded.append(job)
        self.memory |= completion.memory
        if completion.session is not None:
            self.sessions[item.number] = completion.session


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item with its task's ``lane`` and ``call``, with the ``output`` of its row, or with the
    ``problem`` for which it can never run. ``memory``: fields of the run's memory that it may read;
    ``asked``: fields that it adds.
    """

    item: RunItem
    position: int
    lane: str = ""
    call: Call | None = None
    output: str | None = None
    problem: str | None = None
    model: str | None = None
    asked: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[bytes, bytes] | None = None
