"""The names of all log events, for code that greps and dashboards that filter; `docs/logs.md` lists them."""

from enum import StrEnum


class Event(StrEnum):
    """Log event names. Each line carries run, job, lane, team and attempt if it concerns one.

    A comment gives the event's own fields.
    """

    __repr__ = str.__repr__  # lines of other applications show values by their repr

    # Jobs and attempts
    QUEUEING = "queueing"  # queue_depth
    ACQUIRED = "acquired"  # active_slots, queue_depth
    RELEASED = "released"  # active_slots, status_code, wire_ms
    RETRY = "retry"  # status_code, delay_s, reason
    TIMEOUT = "timeout"  # timeout_s
    ATTEMPT_FAILED = "attempt_failed"  # a defect in the worker; carries a traceback
    ATTEMPT_UNREPORTED = "attempt_unreported"  # error
    EVALUATION_MALFORMED = "evaluation_malformed"  # agent, dimension, raw
    EVALUATION_FAILED = "evaluation_failed"  # agent, dimension, status_code, elapsed_s, attempts, reason
    PARAMETER_UNSUPPORTED = "parameter_unsupported"  # connection, model, parameter, value, instead, reason
    FUNCTION_RAISED = "function_raised"  # function; carries a traceback
    HANDLE_UNSAVED = "handle_unsaved"  # error
    LATE_REPORT = "late_report"  # status_code
    STALE_CLAIM = "stale_claim"  # error
    LEASE_RECOVERED = "lease_recovered"  # worker, failed

    # Runs
    RUN_ADMITTED = "run_admitted"  # items, jobs
    RUN_HELD = "run_held"  # lane, reason
    RUN_DAMAGED = "run_damaged"  # error
    RUN_REFUSED = "run_refused"  # reason
    RUN_PROGRESS = "run_progress"  # done, total, in_flight, waiting_for; every 30 s
    RUN_FINISHED = "run_finished"  # predict_waiting_s, predict_calling_s, score_waiting_s, score_calling_s
    RUN_CANCELLED = "run_cancelled"  # jobs
    RUN_PAUSED = "run_paused"  # by
    RUN_RESUMED = "run_resumed"  # by
    RUN_ENDED_EARLY = "run_ended_early"  # jobs, reason
    JOBS_FAILED_UNCALLED = "jobs_failed_uncalled"  # lane, jobs, reason
    RUN_ARCHIVED = "run_archived"
    ARCHIVE_FAILED = "archive_failed"  # error
    FEEDING_FAILED = "feeding_failed"  # error
    ITEM_RAISED = "item_raised"  # item, error
    TEMPLATES_UNCHECKED = "templates_unchecked"  # error
    SPEC_UNREADABLE = "spec_unreadable"
    PLAN_UNREADABLE = "plan_unreadable"  # errors
    PAGE_UNREADABLE = "page_unreadable"  # page, error
    SESSIONS_UNREADABLE = "sessions_unreadable"  # page, error

    # Teams
    TOKENIZERS_MISSING = "tokenizers_missing"  # reason
    CONNECTION_AWAITED = "connection_awaited"  # run, team, connection, remedy
    TEAM_THROTTLED = "team_throttled"  # throttled_ms
    WORK_CUT_OFF = "work_cut_off"  # what, reason
    BUDGET_NEARLY_USED = "budget_nearly_used"  # team, lane, per, unit, used, most, until
    BUDGET_USED_UP = "budget_used_up"  # the same

    # Lanes
    LANE_CREATED = "lane_created"
    LANE_FORGOTTEN = "lane_forgotten"  # unused_s
    LANE_BLOCKED = "lane_blocked"  # reason, delay_s
    LANE_RATE_CUT = "lane_rate_cut"  # reason
    LANE_PARKED = "lane_parked"  # reason
    LANE_SHARED = "lane_shared"
    JOBS_LOST = "jobs_lost"  # jobs, reason
    LANES_RECOUNTED = "lanes_recounted"  # lanes
    RUNS_RECOUNTED = "runs_recounted"  # runs
    KEY_DISCARDED = "key_discarded"  # key, found, wanted
    INDEX_RESTORED = "index_restored"  # index, entries
    LANE_RESTORED = "lane_restored"
    LANE_REOPENED = "lane_reopened"
    LANES_JOINED = "lanes_joined"  # connection, lanes
    LANES_PARTED = "lanes_parted"  # connection, before
    LIMITS_OVERRULED = "limits_overruled"  # lane, by
    CIRCUIT_OPENED = "circuit_opened"  # reason
    CIRCUIT_CLOSED = "circuit_closed"

    # Credentials
    CREDENTIAL_MISSING = "credential_missing"  # connection, variable, file or program
    CREDENTIAL_UNREADABLE = "credential_unreadable"  # connection, error
    CONNECTION_UNUSABLE = "connection_unusable"  # connection, error
    CREDENTIAL_IN_USE = "credential_in_use"  # connection, fingerprint
    CREDENTIAL_CHANGED = "credential_changed"  # connection, fingerprint, before
    CREDENTIALS_DIFFER = "credentials_differ"  # connection, fingerprint, held
    LANE_LEFT = "lane_left"  # lane, reason, again_s
    LANE_TRIED_AGAIN = "lane_tried_again"  # lane
    CREDENTIALS_UNREPORTED = "credentials_unreported"  # error

    # Processes
    MODULE_MISSING = "module_missing"  # module, folder
    LEADER_ELECTED = "leader_elected"  # epoch
    LEADER_LOST = "leader_lost"  # epoch
    CLOCK_STEPPED = "clock_stepped"  # back_s
    TICK_FAILED = "tick_failed"
    SURVEY_FAILED = "survey_failed"
    WORKER_STARTED = "worker_started"  # worker, slots
    SLOTS_LOWERED = "slots_lowered"  # slots, reason
    WORKER_FAILED = "worker_failed"
    WORKER_STOPPING = "worker_stopping"  # busy
    WORKER_DRAINING = "worker_draining"  # busy
    WORKER_RESUMED = "worker_resumed"  # busy
    LOOP_STANDS = "loop_stands"
    LOOP_TURNS = "loop_turns"
    PROCESS_STUCK = "process_stuck"  # silent_s, frames
    WORKER_LOST = "worker_lost"  # worker, leases
    LANES_SERVED = "lanes_served"  # app, lanes
    HEARTBEAT_FAILED = "heartbeat_failed"  # worker
    LISTENING_FAILED = "listening_failed"  # worker
    BATCH_FAILED = "batch_failed"  # commands
    MESSAGE_UNREADABLE = "message_unreadable"  # id
    SLOT_NOT_FREED = "slot_not_freed"
    CONSUMER_FAILED = "consumer_failed"
    BROKER_UNREACHABLE = "broker_unreachable"  # error, again_s
    BROKER_REFUSES = "broker_refuses"  # error, again_s
    STORE_UNREACHABLE = "store_unreachable"  # error, store
    STORE_BACK = "store_back"  # store
    STORE_EVICTS = "store_evicts"  # policy, remedy
    METRICS_SERVED = "metrics_served"  # url
    METRICS_UNSERVED = "metrics_unserved"  # host, port, error
    METRICS_REQUEST_BROKEN = "metrics_request_broken"
    LOG_LINES_LOST = "log_lines_lost"  # lines
    FLOWER_NAVIGATION_UNKNOWN = "flower_navigation_unknown"  # template
