"""The closed sets of words that requests and answers use: states, kinds, reasons, limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, get_args

# The languages of descriptions.
Form = Literal["jdl", "cfg", "json"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)


class JobState(StrEnum):
    """Where a job is. The value is the word users see."""

    HELD = "Held"
    WAITING = "Waiting"
    MATCHED = "Matched"
    RUNNING = "Running"
    STALLED = "Stalled"
    COMPLETING = "Completing"
    DONE = "Done"
    FAILED = "Failed"
    KILLED = "Killed"
    DELETED = "Deleted"


class Level(StrEnum):
    """Where an effective value came from; a later level beats an earlier one.

    DEFAULT and CE_TYPE are DIRAC's `/Resources/Computing/CEDefaults` and `/Resources/Computing/<CEType>`: they hold
    for CEs and queues, beneath all that the site says.
    """

    DEFAULT = "default"
    CE_TYPE = "CE type"
    SITE = "site"
    SITE_VO = "site(VO)"
    CE = "CE"
    CE_VO = "CE(VO)"
    QUEUE = "queue"
    QUEUE_VO = "queue(VO)"


class Kind(StrEnum):
    """What a parameter is; DEDUCED is the kind of undeclared ones, EXPRESSION that of `Constraint`, which is none."""

    NUMBER = "number"
    STRING = "string"
    LIST = "list"
    VERSION = "version"
    BOOLEAN = "boolean"
    DEDUCED = "deduced"
    EXPRESSION = "expression"


class PilotState(StrEnum):
    """Where a pilot is. `Prepared`: stored, its submission not yet confirmed."""

    PREPARED = "Prepared"
    SUBMITTED = "Submitted"
    RUNNING = "Running"
    DONE = "Done"
    ABORTED = "Aborted"
    LOST = "Lost"


class TargetPolicy(StrEnum):
    """How the director finds the target of an iteration."""

    SEED = "seed"
    ADAPTIVE = "adaptive"
    GAP = "gap"
    RATIO = "ratio"


class GateMode(StrEnum):
    """How the gate of a site counts what was sent there since its last ad.

    LEDGER: until an ad shows it, so that no limit is exceeded. STRICT: as SAM-Grid does, to the letter.
    """

    LEDGER = "ledger"
    STRICT = "strict"


class Packing(StrEnum):
    """Which of the task queues of an owner, alike in UserPriority, a pilot gets that runs several payloads at once.

    WASTE: the one whose job leaves the pilot the least draining waste. ANY: one that is drawn.
    """

    WASTE = "waste"
    ANY = "any"


class ClampName(StrEnum):
    """The closed set of limits the director knows."""

    USABLE_SUPPLY = "usable-supply"
    ITERATION_CAP = "pilots-per-iteration"
    CLOSED = "closed"
    NO_BACKEND = "no-backend"
    LIST_MATCH = "list-match"
    REFUSED_FOR_NOW = "refused-for-now"
    HOST_SHUT = "host-shut"
    UNKNOWN_LOAD = "unknown-load"
    BREAKER = "breaker"
    MAX_WAITING = "max-waiting"
    MAX_TOTAL = "max-total"
    MAX_RUNNING = "max-running"
    MAX_HELD = "max-held"
    RAMP = "ramp"
    TOKEN_BUCKET = "token-bucket"
    SITE_GATE = "site-gate"
    NO_POOL = "no-pool"
    CREDENTIAL = "credential"


class Waking(StrEnum):
    """What the hot process announces to the background one, in a byte: there may be work before the time for it comes."""

    JOBS = "j"
    """Jobs joined a task queue that was empty, and wait."""
    AD = "a"
    """A site has advertised itself."""
    PILOT_ENDED = "p"
    SHARES = "s"
    """Groups have other shares."""


class BreakerState(StrEnum):
    """How much trust a CE queue has."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class StartFault(StrEnum):
    """Why a pilot did not start, or speaks against its queue: the batch system refused it, or did not answer; it ended
    before it joined, waited too long, joined where jobs fail at once, or left a node of no use.
    """

    REFUSED = "refused"
    UNANSWERED = "unanswered"
    ENDED = "ended-before-it-joined"
    WAITED = "waited-too-long"
    BAD_HOST = "host-is-shut"
    JOBS_FAIL = "jobs-fail-at-site"
    NODE_FAULT = "node-fault"


class PoolOutcome(StrEnum):
    """What a pool said."""

    TAKEN = "taken"
    FULL = "full"
    DISABLED = "disabled"
    UNKNOWN = "unknown"
    ELSEWHERE = "not handled by this director"
    NO_QUEUE = "for other queues"


class RefusalKind(StrEnum):
    """Why a CE queue got none, or no more, of a task queue's pilots."""

    OTHER_POOL = "the submission pool does not serve this queue"
    OTHER_VO = "the queue does not serve the VO"
    PRIVATE_ONLY = "the queue takes private pilots only (GenericPilots)"
    NO_CREDENTIAL = "nothing may be submitted there with its identity"
    INELIGIBLE = "a pilot there could not run these jobs"
    UNMATCHED = "the site and the pilots do not match as it advertises itself"
    NOT_ADMITTED = "the gate of the site does not admit these pilots now"
    NO_ROOM = "no new pilots may be sent there"
    FILLED = "its room was used up in this iteration"
    POOL_FULL = "the submission pool takes no more submissions (totalThreadsInPool)"


class MainReason(StrEnum):
    """Why the jobs of a task queue wait, in one word: what stands farthest from running them."""

    IMPOSSIBLE = "impossible"
    CLOSED = "closed-by-administrator"
    NOT_DECIDED = "director-has-not-decided"
    DIRECTOR_OFF = "director-sends-none"
    NO_SUBMISSION_POOL = "no-submission-pool"
    NO_ROOM = "no-room-for-pilots"
    SITE_GATE = "site-gate"
    PILOT_EXPECTED = "pilot-expected"
    PILOT_COMING = "pilot-on-its-way"
    QUEUED = "queued-behind"
    PILOTS_BUSY = "pilots-busy"
    NO_PILOT_SOON = "no-pilot-soon"
    PILOTS_FAIL = "pilots-do-not-start"
    NODE_FAULT = "node-fault"
    UNREACHED = "pilots-do-not-reach-the-server"
    HOST_SHUT = "host-shut"
    NEXT = "next"
    LIMITED = "limited"
    OVER_LIMIT = "over-limit"
    WAITS_FOR_JOBS = "waits-for-jobs"
    AT_MOST = "at-most"
    HELD = "held"


class PilotVerdict(StrEnum):
    """Why a pilot gets nothing, the first that holds."""

    ENDED = "ended"
    DRAINING = "draining"
    BOUND = "bound to a job"
    NOT_CONFIGURED = "not configured"
    HOST_SHUT = "host is shut"
    NOT_ASKED = "has not asked"
    FULL = "full"
    WOULD_GET = "would get a job now"
    NOTHING_WAITS = "nothing waits"
    WAITS_FOR_JOBS = "jobs wait for jobs"
    LIMITED = "limited"
    NOTHING_FITS = "nothing fits"


class QueueReason(StrEnum):
    """Why pilots are sent there or not: the first that holds."""

    NOT_CONFIGURED = "not-configured"
    NOT_OPEN = "not-open-to-vo"
    NO_BACKEND = "no-backend"
    NO_JOB_FITS = "no-job-could-fit"
    CAPPED = "capped-at-zero"
    NEVER_RUN = "refused-by-batch-system"
    NO_WORK = "no-fitting-job-waits"
    MANUAL = "manual-pilots"
    NOT_DECIDED = "director-has-not-decided"
    DIRECTOR_OFF = "director-sends-none"
    ENOUGH_PILOTS = "enough-pilots"
    NO_SUBMISSION_POOL = "no-submission-pool"
    NO_ROOM = "no-room-for-pilots"
    LIMITED = "limited"
    AT_MOST = "at-most"
    SITE_GATE = "site-gate"
    PILOTS_EXPECTED = "pilots-expected"
    NOT_SERVED = "no-pool-serves-it"


class FreeBy(StrEnum):
    """Who says what a pilot has free. RECKONED: from its offer and the jobs that it has."""

    WAITING = "what it asks for"
    ASKED = "its last claim"
    RECKONED = "its offer without what its jobs were promised"
