"""Every Redis key and channel of a deployment, built in one place and carrying one hash tag.

Owners by prefix below ``fairlane:{<deployment>}:v2:`` —

``team:<team>:…``  written by that team's clients: its inbox, its runs' specs and rows. Hostile input.
``run:<team>:…``   written by scheduler and workers: a run's state, results and queues. The team may read it.
the rest           leader, lanes, leases, workers: the system's own.
"""

import json

from fairlane.model.run import RunRef
from fairlane.store.redis_client import RedisClient

KEY_VERSION = "v2"
TOKEN_AXES = ("tokens", "input", "output")
_SERVED = "served:"


class Keys:
    """Key names of one deployment."""

    def __init__(self, deployment: str, version: str = KEY_VERSION) -> None:
        self.prefix = f"fairlane:{{{deployment}}}:{version}:"
        self.leader = f"{self.prefix}leader"  # hash: id, epoch, until_ms, server
        # Hash: the deployment's time, as in lua/lib/core/time.lua. Its name is that of the state of a lane
        # with an empty name, which cannot exist: so the rules of teams' users allow them to read it.
        self.clock = self.lane("")
        self.teams = f"{self.prefix}teams"  # set: teams that have ever sent a request
        self.registry = f"{self.prefix}registry"  # hash: team → its entry in the registry
        self.active = f"{self.prefix}active"  # set: "<team>/<run>" of runs that are not finished
        self.catalog = f"{self.prefix}catalog"  # string: the connections, as clients may see them
        self.lanes = f"{self.prefix}lanes"  # set: lane keys
        self.configured = f"{self.prefix}configured"  # hash: lane → its limits in the configuration
        self.openers = f"{self.prefix}openers"  # hash: undescribed lane → the team that opened it
        self.scopes = f"{self.prefix}scopes"  # hash: connection → the owner of its lanes, and its credential
        self.leases = f"{self.prefix}leases"  # zset: attempt id → deadline_ms
        self.leased = f"{self.prefix}leased"  # hash: attempt id → the lease's record
        self.delayed = f"{self.prefix}delayed"  # zset: "<run ref>|<entry>|<lane>" → due_ms
        self.dirty = f"{self.prefix}dirty"  # set: marks "<lane>" or "<lane>|<run ref>" for the next tick
        self.starved = f"{self.prefix}starved"  # set: lanes that wait for a worker's slot
        self.workers = f"{self.prefix}workers"  # hash: worker id → its last heartbeat
        self.drains = f"{self.prefix}drains"  # hash: worker id → "idle", "stop" or "work"
        self.audit = f"{self.prefix}audit"  # stream: who changed what, and when
        self.budgets = f"{self.prefix}budgets"  # set: teams that have budgets
        self.salt = f"{self.prefix}salt"  # string: the salt of credentials' fingerprints
        self.wake = f"{self.prefix}wake"  # channel: something is marked dirty, or "inbox:<team>"
        self.control = f"{self.prefix}control"  # channel: "cancel:<team>/<run>", "lanes", "drain"

    def inbox(self, team: str) -> str:
        """List of a team's requests to the scheduler."""
        return f"{self.prefix}team:{team}:inbox"

    def spec(self, ref: RunRef) -> str:
        """String: the run's spec as its client wrote it."""
        return f"{self.prefix}team:{ref.team}:run:{ref.run}:spec"

    def rows(self, ref: RunRef) -> str:
        """Hash: page number → compressed rows; and their sessions (`fairlane.model.sessions`), origins, and
        digests of what was read by reference (`digest_field`).
        """
        return f"{self.prefix}team:{ref.team}:run:{ref.run}:rows"

    def client_scores(self, ref: RunRef) -> str:
        """String: JSON {scorer of a client: its scores over the run's records}."""
        return f"{self.prefix}team:{ref.team}:run:{ref.run}:client_scores"

    def runs(self, team: str) -> str:
        """Zset: the team's runs → submitted_ms."""
        return f"{self.prefix}run:{team}:index"

    def budget(self, team: str) -> str:
        """Hash: a team's budgets a day or a month, and their use."""
        return f"{self.prefix}run:{team}:budget"

    def _run(self, ref: RunRef, part: str) -> str:
        return f"{self.prefix}run:{ref.team}:{ref.run}:{part}"

    def state(self, ref: RunRef) -> str:
        """Hash: run state, cursor, totals and counters."""
        return self._run(ref, "state")

    def plan(self, ref: RunRef) -> str:
        """String: the spec as admitted, with its lanes resolved."""
        return self._run(ref, "plan")

    def results(self, ref: RunRef) -> str:
        """Hash: job number → result."""
        return self._run(ref, "results")

    def finished(self, ref: RunRef) -> str:
        """List: items in the order in which they ended."""
        return self._run(ref, "finished")

    def done(self, ref: RunRef) -> str:
        """Bitmap: job number → has its terminal record."""
        return self._run(ref, "done")

    def jobs(self, ref: RunRef) -> str:
        """Hash: job number → "dispatches:attempts:rate limits" of jobs that were ever in flight. More may
        follow: the handle of an asynchronous call (`Attempts.wait_for`), failures, rejections, and paid
        answers that were not kept (``lib/job/attempt_counts.lua``).
        """
        return self._run(ref, "jobs")

    def run_lanes(self, ref: RunRef) -> str:
        """Set: lanes on which the run has had jobs."""
        return self._run(ref, "lanes")

    def hot(self, ref: RunRef, lane: str) -> str:
        """List of entries: ready evaluations and due retries of a run on a lane. They start first, unless
        most retries fail (``lib/lane/retries.lua``).
        """
        return self._run(ref, f"hot:{lane}")

    def fresh(self, ref: RunRef, lane: str) -> str:
        """List of entries: items of a run on a lane that were never called."""
        return self._run(ref, f"fresh:{lane}")

    def memory(self, ref: RunRef) -> str:
        """Hash: values that later items read of earlier ones, until the run ends."""
        return self._run(ref, "memory")

    def sessions(self, ref: RunRef) -> str:
        """Hash: "session:cell" → how many of its items have ended."""
        return self._run(ref, "sessions")

    def fed(self, ref: RunRef) -> str:
        """Bitmap: item → it was fed. Only of a run whose conversations go side by side."""
        return self._run(ref, "fed")

    def chunks(self, ref: RunRef) -> str:
        """Channel: pieces of streamed output, while a client listens."""
        return self._run(ref, "chunks")

    def answer(self, team: str, digest: str) -> str:
        """String: the cached answer of a call."""
        return f"{self.prefix}run:{team}:answer:{digest}"

    def lane(self, lane: str) -> str:
        """Hash: a lane's buckets, circuit and counters."""
        return f"{self.prefix}lane:{lane}:state"

    def headroom(self, lane: str, axis: str) -> str:
        """List: how far a lane's bucket of a token axis was from full before each of its latest charges."""
        return f"{self.prefix}lane:{lane}:headroom:{axis}"

    def owed(self, lane: str) -> str:
        """Hash: team → correction of charges in 1e-9 lane minutes; positive: it was charged too little."""
        return f"{self.prefix}lane:{lane}:owed"

    def history(self, lane: str, step: str) -> str:
        """List: a lane's recent samples, one for each step (`fairlane.store.write.lanes.lane_history`)."""
        return f"{self.prefix}lane:{lane}:history:{step}"

    def in_flight(self, lane: str) -> str:
        """Hash: team → its calls in flight on a lane."""
        return f"{self.prefix}lane:{lane}:in_flight"

    def reserved_shares(self, lane: str) -> str:
        """Hash: a team's reserved or maximum share of a lane → when the next call of that share may start."""
        return f"{self.prefix}lane:{lane}:reserved_shares"

    def limits(self, lane: str) -> str:
        """Hash: a lane's configured limits."""
        return f"{self.prefix}lane:{lane}:limits"


class Stored:
    """Reads or changes what a deployment has stored, by its keys and through one client."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys


def digest_field(page: int) -> str:
    """The field, next to a run's rows, of the digest of a page that was read by reference."""
    return f"digest:{page}"


def served_field(asked: str, served: str) -> str:
    """The field of a run's state which notes that model ``served`` has answered a call to ``asked``."""
    return f"{_SERVED}{json.dumps([asked, served])}"


def served_models(field: bytes) -> tuple[str, str] | None:
    """The two names of such a field; ``None`` for any other."""
    if not field.startswith(_SERVED.encode()):
        return None
    asked, served = json.loads(field[len(_SERVED) :])
    return asked, served
