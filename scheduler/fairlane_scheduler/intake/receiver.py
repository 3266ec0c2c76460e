"""Reads the teams' inboxes in turn, so that no team's requests delay another's. Clients are not trusted."""

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice

from redis.exceptions import OutOfMemoryError

from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.model.run import RunRef
from fairlane.store.write.leader import Leader
from fairlane.store.write.runs.inbox import Inbox, Request
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.dispatch.fairness import TeamThrottle
from fairlane_scheduler.intake.admission import Admission
from fairlane_scheduler.intake.run_requests import RunRequests
from fairlane_scheduler.intake.template_check import RequestAwaited
from fairlane_scheduler.state.server_time import Moment

TICK_MS = 100  # then the remaining requests wait for the next tick
TURN_MS = 25  # then it is another team's turn
COSTLY_MS = 50  # a request that takes longer to read throttles its team
SEARCH_MS = 50  # part of each tick in which a new leader searches all keys for inboxes
MOST_ANNOUNCED = 10_000
CONTROLS = ("cancel", "pause", "resume")  # a team's take a tenth of the scheduler's time, all together

_TEAM = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = get_logger("receiver")


class Receiver:
    """Acts on one request at a time, in order, team by team; drops a request once it has taken effect."""

    def __init__(
        self,
        inbox: Inbox,
        admission: Admission,
        requests: RunRequests,
        leader: Leader,
        clock: Clock,
        teams: Collection[str],
        on_decided: Callable[[RunRef, bool], None] | None = None,
    ) -> None:
        """``teams``: those of the configuration, whose inboxes are looked at even if Redis knows none.

        ``on_decided`` is called with each submitted run, and whether it is admitted.
        """
        self._inbox = inbox
        self._admission = admission
        self._requests = requests
        self._leader = leader
        self._clock = clock
        self._configured = teams
        self._on_decided = on_decided
        self._throttle = TeamThrottle(COSTLY_MS, clock.cpu_ms)
        self._waiting: dict[str, None] = {}
        self._awaited_ms: dict[str, int] = {}  # by team: when to ask again whether a child has compiled
        self._known: set[str] = set()
        self._cursor = 0
        self._searched = False  # whether a whole scan has ended in this term
        self._relieved = ""  # the team that `relieve` served last

    def forget_all(self) -> None:
        """Start over, and search for inboxes that were announced to an earlier leader."""
        self._waiting.clear()
        self._awaited_ms.clear()
        self._admission.forget_all()
        self._known.clear()
        self._cursor, self._searched = 0, False

    def tick(self, teams: Iterable[str] | None, moment: Moment) -> int | None:
        """Act on the requests of ``teams``; ``None``: of all teams.

        Returns milliseconds until the next call: 0 if requests are left or the search for inboxes goes on,
        ``None`` if there are no requests. If all teams with requests are throttled or wait for a child, it is
        the shortest wait. Raises `NotLeader` if another scheduler leads; then no request is dropped.
        """
        started_ms = self._clock.monotonic_ms()
        self._admission.begin_tick()
        if teams is None:
            self._waiting |= dict.fromkeys(self._filled_inboxes())
        else:
            # Announced teams go first; their number is bounded.
            self._waiting = dict.fromkeys([*islice(teams, MOST_ANNOUNCED), *self._waiting])
            if self._searching:
                self._waiting |= dict.fromkeys(self._filled(self._search()))
        later: dict[str, None] = {}
        while self._waiting:
            now_ms = self._clock.monotonic_ms()
            if now_ms - started_ms >= TICK_MS:
                self._waiting |= later
                return 0
            team = next(iter(self._waiting))
            del self._waiting[team]
            if self._wait_ms(team, now_ms):
                later[team] = None
            elif _TEAM.fullmatch(team) and self._serve(team, moment):
                self._waiting[team] = None  # behind the others
        self._waiting = later
        if self._searching:
            return 0
        now_ms = self._clock.monotonic_ms()
        return min((self._wait_ms(team, now_ms) for team in later), default=None)

    def _wait_ms(self, team: str, now_ms: int) -> int:
        """Milliseconds until a team is served: it is throttled, or a child compiles its templates."""
        awaited_ms = self._awaited_ms.get(team, 0) - now_ms
        if awaited_ms <= 0:
            self._awaited_ms.pop(team, None)
        return max(0, awaited_ms, self._throttle.left_ms(team, now_ms))

    def relieve(self, moment: Moment) -> None:
        """Act on requests that free memory while Redis is full; a team's requests behind a submission wait.

        Raises `NotLeader` as `tick` does.
        """
        started_ms, teams = self._clock.monotonic_ms(), sorted(self._filled_inboxes())
        for team in sorted(teams, key=lambda name: name <= self._relieved):  # on from the last one
            if self._clock.monotonic_ms() - started_ms >= TICK_MS:
                return
            self._relieved = team
            with suppress(OutOfMemoryError):
                self._serve(team, moment)

    def _filled_inboxes(self) -> list[str]:
        return self._filled([*self._inbox.teams(), *self._configured, *self._search()])

    def _filled(self, teams: Iterable[str]) -> list[str]:
        named = dict.fromkeys(team for team in teams if _TEAM.fullmatch(team))
        return self._inbox.filled(list(named)) if named else []

    @property
    def _searching(self) -> bool:
        """Whether the first scan of the term has begun and not ended."""
        return self._cursor != 0 and not self._searched

    def _search(self) -> list[str]:
        """Teams whose inboxes the next part of a scan of all keys finds.

        The first scan of a term takes `SEARCH_MS` at a time, because requests from before the term wait for
        it. Later scans take a page at a time.
        """
        started_ms, found = self._clock.monotonic_ms(), list[str]()
        while True:
            self._cursor, some = self._inbox.search(self._cursor)
            found += some
            self._searched = self._searched or self._cursor == 0
            if self._searched or self._clock.monotonic_ms() - started_ms >= SEARCH_MS:
                return found

    def _serve(self, team: str, moment: Moment) -> bool:
        """Act on a team's requests for a turn; false if there were none. A damaged run's go last."""
        handled, started_ms, again = 0, self._clock.monotonic_ms(), list[Request]()
        for request in self._inbox.peek(team):
            if request is not None and not self._act(RunRef(team, request.run), request, moment):
                if not self._requests.is_damaged(RunRef(team, request.run)):
                    break
                again.append(request)
            handled += 1
            now_ms = self._clock.monotonic_ms()
            if self._throttle.left_ms(team, now_ms) or now_ms - started_ms >= TURN_MS:
                break
        if handled:
            self._leader.confirm(moment.argument)
            self._inbox.drop(team, handled, again)
            if team not in self._known:
                self._inbox.remember(team)
                self._known.add(team)
        return handled > 0 or team in self._awaited_ms

    def _act(self, ref: RunRef, request: Request, moment: Moment) -> bool:
        """Act on one request; false if it, and so all behind it, must wait for a later tick."""
        self._throttle.begin()
        try:
            if request.op == "submit":
                admitted = self._admission.submit(ref, moment)
                if admitted is not None and self._on_decided is not None:
                    self._on_decided(ref, admitted)
            else:
                self._requests.act(ref, request, moment)
        except RequestAwaited as awaited:
            self._awaited_ms[ref.team] = self._clock.monotonic_ms() + awaited.wait_ms
            return False
        finally:
            now_ms, is_control = self._clock.monotonic_ms(), request.op in CONTROLS
            if throttled_ms := self._throttle.end(ref.team, now_ms, sums=is_control):
                log.warning(Event.TEAM_THROTTLED, team=ref.team, throttled_ms=throttled_ms)
        return True
