"""The names of everything that is logged: one place to grep, one vocabulary for dashboards."""

from __future__ import annotations

from enum import StrEnum


class Event(StrEnum):
    """Log event names. Each line carries run, job, lane, team and attempt where they apply."""

    QUEUEING = "queueing"  # a job became a candidate of its lane: queue_depth
    ACQUIRED = "acquired"  # an attempt was granted its permit: active_slots
    RELEASED = "released"  # an attempt gave its permit back: active_slots, status_code
    RETRY = "retry"  # a job goes back for another attempt: attempt, status_code, delay_s
    TIMEOUT = "timeout"  # a call passed its deadline: timeout_s

    RUN_ADMITTED = "run_admitted"
    RUN_REFUSED = "run_refused"
    INBOX_CUT = "inbox_cut"  # a team asked for more than is read: waiting, kept
    TEAM_RESTS = "team_rests"  # its requests or templates took the scheduler's time: rest_ms
    RUN_FINISHED = "run_finished"
    RUN_CANCELLED = "run_cancelled"
    RUN_PAUSED = "run_paused"  # it starts nothing from now on: by
    RUN_UNPAUSED = "run_unpaused"  # it goes on: by
    RUN_ENDED_EARLY = "run_ended_early"
    RUN_ARCHIVED = "run_archived"
    ARCHIVE_FAILED = "archive_failed"
    EVALUATION_MALFORMED = "evaluation_malformed"
    EVALUATION_FAILED = "evaluation_failed"

    LANE_CREATED = "lane_created"
    LANE_BLOCKED = "lane_blocked"
    LANE_RATE_CUT = "lane_rate_cut"
    LANE_PARKED = "lane_parked"
    LANE_SHARED = "lane_shared"
    LANE_RESTORED = "lane_restored"
    LANE_REOPENED = "lane_reopened"  # what an earlier credential had parked is tried again
    LANES_JOINED = "lanes_joined"  # a connection shares a limit, and from now on its lanes: connection, lanes
    LANES_PARTED = "lanes_parted"  # a connection does not share them any more: connection, before
    LIMITS_OVERRULED = "limits_overruled"  # two tables for one lane: lane, of those the one that counts: by
    CREDENTIAL_CHANGED = "credential_changed"  # of a connection: fingerprint, before
    CREDENTIALS_DIFFER = "credentials_differ"  # workers hold several: fingerprint (in force), held
    CIRCUIT_OPENED = "circuit_opened"
    CIRCUIT_CLOSED = "circuit_closed"

    BUDGET_NEARLY_USED = "budget_nearly_used"  # of a team, 80 %: lane, per, unit, used, most
    BUDGET_USED_UP = "budget_used_up"  # its next call waits for the period's end: until

    LEADER_ELECTED = "leader_elected"
    LEADER_LOST = "leader_lost"
    LEASE_RECOVERED = "lease_recovered"
    LATE_REPORT = "late_report"
    STALE_CLAIM = "stale_claim"

    WORKER_STARTED = "worker_started"
    WORKER_STOPPING = "worker_stopping"
    WORKER_DRAINING = "worker_draining"  # an operator asked it to take nothing new: busy
    WORKER_RESUMED = "worker_resumed"
    WORKER_LOST = "worker_lost"
    METRICS_SERVED = "metrics_served"  # where: url
    METRICS_UNSERVED = "metrics_unserved"  # no port was free: host, port, error
    STORE_UNREACHABLE = "store_unreachable"
    STORE_BACK = "store_back"
