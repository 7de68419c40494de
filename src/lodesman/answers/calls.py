"""The table of calls: every operation of the server, once. Dispatch, rights, the OpenAPI document and clients follow it."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Raw

from lodesman.answers import requests as ask
from lodesman.answers import server, service
from lodesman.answers.accounts import Me, Revoked, Token, Tokens, UserMade
from lodesman.answers.call import PLAN_BODY, REPORT_BODY, SUBMIT_BODY, Call, Nothing
from lodesman.answers.director import DirectorAnswer
from lodesman.answers.jobs import (
    Controlled,
    Counts,
    JobDescription,
    JobInFull,
    Jobs,
    Logs,
    Stored,
    Submission,
    TrialSubmission,
)
from lodesman.answers.nodes import QueueId
from lodesman.answers.pilots import (
    ClaimAnswer,
    Drained,
    HeartbeatAnswer,
    Joined,
    Left,
    Pilots,
    ReportsAnswer,
)
from lodesman.answers.plans import JobPlan, ResourcesPlan, SharesPlan
from lodesman.answers.server import Configuration, Health
from lodesman.answers.sites import Queues, ResourceNode, SiteClosed, SiteOpened, Sites
from lodesman.answers.task_queues import PoolInFull, Pools, Served, TaskQueues, WaitingReasons
from lodesman.answers.usage import Usage
from lodesman.answers.why_jobs import JobWaits, JobWaitsNot
from lodesman.answers.why_pilots import PilotWhy
from lodesman.answers.why_queues import QueueExplained

B = TypeVar("B")
A = TypeVar("A")
# A plan is given up by the server after a minute, and may have waited for others.
PLAN_SECONDS = 180.0

# fmt: off
# --- jobs ---------------------------------------------------------------------------------------------------------------

SUBMIT: Call[Nothing, ask.SubmitBody, Submission | TrialSubmission] = Call(
    "POST", "/v1/jobs", Nothing, ask.SubmitBody, (Submission, TrialSubmission), who="jobs:write", process="hot",
    summary="Submit jobs", most_bytes=SUBMIT_BODY, repeatable=True, refused=(422,),
    timeout=300.0,
)
JOBS = Call("GET", "/v1/jobs", ask.JobsQuery, Nothing, Jobs, who="jobs:read", summary="List jobs")
JOB_COUNTS = Call(
    "GET", "/v1/jobs/counts", ask.CountsQuery, Nothing, Counts, who="jobs:read",
    summary="Jobs by owner, group and state",
)
CONTROL = Call(
    "POST", "/v1/jobs/control", Nothing, ask.ControlBody, Controlled, who="jobs:write", process="hot",
    summary="Kill, hold, release, reschedule, delete", refused=(404,),
)
JOB = Call(
    "GET", "/v1/jobs/{job}", ask.JobAt, Nothing, JobInFull, who="jobs:read",
    summary="One job with attempts and events",
)
JOB_WHY: Call[ask.JobInQueue, Nothing, JobWaits | JobWaitsNot] = Call(
    "GET", "/v1/jobs/{job}/why", ask.JobInQueue, Nothing, (JobWaits, JobWaitsNot), who="jobs:read",
    summary="Why a job waits, and what would let it run", refused=(400,),
)
JOB_DESCRIPTION = Call(
    "GET", "/v1/jobs/{job}/description", ask.JobInForm, Nothing, JobDescription, who="jobs:read",
    summary="The description of a job",
)
JOB_LOGS = Call(
    "GET", "/v1/jobs/{job}/logs", ask.JobAt, Nothing, Logs, who="jobs:read", process="hot",
    summary="The last 64 kB of output",
)
JOB_OUTPUT: Call[ask.JobAt, Nothing, None] = Call(
    "GET", "/v1/jobs/{job}/output", ask.JobAt, Nothing, (), who="jobs:read", raw="application/gzip",
    summary="The output sandbox: a tar.gz",
)
PUT_OUTPUT = Call(
    "PUT", "/v1/jobs/{job}/attempts/{attempt}/output", ask.AttemptAt, Nothing, Stored, who="pilot",
    summary="A pilot stores an output sandbox", upload="application/gzip",
)
PUT_SANDBOX = Call(
    "POST", "/v1/sandboxes", Nothing, Nothing, Stored, who="jobs:write",
    summary="Upload an input file", upload="application/octet-stream",
)
SANDBOX = Call(
    "GET", "/v1/sandboxes/{digest}", ask.SandboxAt, Nothing, Stored, who="any", raw="application/octet-stream",
    summary="Whether a file is there (users), or the file (pilots)",
)

# --- plans --------------------------------------------------------------------------------------------------------------

PLAN_JOB = Call(
    "POST", "/v1/plan/job", Nothing, ask.PlanJobBody, JobPlan, who="jobs:read", most_bytes=SUBMIT_BODY, repeatable=True,
    summary="Plan a submission: what would become of it", timeout=PLAN_SECONDS,
)
PLAN_RESOURCES = Call(
    "POST", "/v1/plan/resources", Nothing, ask.PlanResourcesBody, ResourcesPlan, who="admin", most_bytes=PLAN_BODY,
    summary="Plan other resources: what they would change", repeatable=True, timeout=PLAN_SECONDS,
)
PLAN_SHARES = Call(
    "POST", "/v1/plan/shares", Nothing, ask.PlanSharesBody, SharesPlan, who="admin", most_bytes=PLAN_BODY,
    summary="Plan other shares: what they would change", repeatable=True, refused=(404,), timeout=PLAN_SECONDS,
)

# --- pilots, for users --------------------------------------------------------------------------------------------------

PILOTS = Call("GET", "/v1/pilots", ask.PilotsQuery, Nothing, Pilots, who="pilots:read", summary="Pilots")
PILOT_WHY = Call(
    "GET", "/v1/pilots/{pilot}/why", ask.PilotAt, Nothing, PilotWhy, who="pilots:read",
    summary="Why a pilot (number or stamp) got nothing",
)
DRAIN = Call(
    "POST", "/v1/pilots/drain", Nothing, ask.DrainBody, Drained, who="admin", process="hot",
    summary="Let pilots finish and leave", repeatable=True,
)

# --- where jobs wait and can run ----------------------------------------------------------------------------------------

TASK_QUEUES = Call(
    "GET", "/v1/task-queues", ask.TaskQueuesQuery, Nothing, TaskQueues, who="jobs:read",
    summary="Task queues with waiting jobs",
)
WAITING_REASONS = Call(
    "GET", "/v1/task-queues/reasons", Nothing, Nothing, WaitingReasons, who="jobs:read",
    summary="Why jobs wait: jobs and task queues by main reason",
)
POOLS = Call(
    "GET", "/v1/submit-pools", ask.PoolsQuery, Nothing, Pools, who="pilots:read",
    summary="SubmitPools: requirements, queues, jobs, the last pass",
)
POOL = Call(
    "GET", "/v1/submit-pools/{pool}", ask.PoolAt, Nothing, PoolInFull, who="pilots:read",
    summary="One SubmitPool, by the beginning of its id", refused=(409,),
)
SERVED_POOLS = Call(
    "POST", "/v1/submit-pools/for-queues", Nothing, ask.QueuesBody, Served, who="pilot or pilots:read", process="hot",
    summary="The SubmitPools that CE queues serve", repeatable=True,
)
SITES = Call("GET", "/v1/sites", Nothing, Nothing, Sites, who="pilots:read", summary="Sites, and what is closed")
CLOSE_SITE = Call(
    "POST", "/v1/sites/close", Nothing, ask.CloseSiteBody, SiteClosed, who="admin", process="hot",
    summary="Send no pilots to a site, CE or queue", repeatable=True, refused=(404,),
)
OPEN_SITE = Call(
    "POST", "/v1/sites/open", Nothing, ask.OpenSiteBody, SiteOpened, who="admin", process="hot",
    summary="Open what was closed", refused=(409,),
)
QUEUES = Call(
    "GET", "/v1/queues", ask.QueuesQuery, Nothing, Queues, who="pilots:read",
    summary="CE queues with effective parameters",
)
QUEUE_WHY = Call(
    "GET", "/v1/queues/why", ask.NodeQuery, Nothing, QueueExplained, who="pilots:read",
    summary="Why no pilots are sent to a CE queue", refused=(400, 404),
)
RESOURCES = Call(
    "GET", "/v1/resources", ask.NodeQuery, Nothing, ResourceNode, who="pilots:read",
    summary="A site, CE or queue: every value, and where it is written", refused=(400, 404),
)
CONFIGURATION = Call(
    "GET", "/v1/configuration", Nothing, Nothing, Configuration, who="pilots:read",
    summary="The configuration in use, and what was refused",
)
USAGE = Call(
    "GET", "/v1/usage", Nothing, Nothing, Usage, who="jobs:read",
    summary="Job states, actual and target shares, times, failures",
)
DIRECTOR = Call(
    "GET", "/v1/director", Nothing, Nothing, DirectorAnswer, who="pilots:read",
    summary="The director's last iteration with its arithmetic",
)

# --- users and the server -----------------------------------------------------------------------------------------------

ME = Call("GET", "/v1/me", Nothing, Nothing, Me, who="any", summary="Who this token belongs to")
ADD_USER = Call(
    "POST", "/v1/users", Nothing, ask.AccountBody, UserMade, who="admin", process="hot",
    summary="Make or change a user", repeatable=True,
)
TOKENS = Call("GET", "/v1/tokens", Nothing, Nothing, Tokens, who="admin", summary="Tokens (never their text)")
ISSUE_TOKEN = Call(
    "POST", "/v1/tokens", Nothing, ask.TokenBody, Token, who="user", process="hot",
    summary="Issue a token", refused=(404, 409),
)
REVOKE_TOKEN = Call(
    "DELETE", "/v1/tokens/{prefix}", ask.TokenAt, Nothing, Revoked, who="admin", process="hot",
    summary="Revoke a token", refused=(409,),
)
HEALTH = Call("GET", "/health", Nothing, Nothing, Health, who="none", process="hot", summary="Is the server well")
OPENAPI: Call[Nothing, Nothing, dict[str, Any]] = Call(
    "GET", "/v1/openapi.json", Nothing, Nothing, dict[str, Any], who="none", summary="This document"
)
METRICS: Call[Nothing, Nothing, None] = Call(
    "GET", "/metrics", Nothing, Nothing, (), who="pilots:read", raw="text/plain", summary="Prometheus metrics"
)
HOT_METRICS = Call(
    "GET", "/v1/hot/metrics", Nothing, Nothing, server.HotMetrics, who="admin", process="hot",
    summary="Counters of the process that takes changes",
)

# --- pilots, for themselves ---------------------------------------------------------------------------------------------

JOIN = Call(
    "POST", "/v1/pilots/join", Nothing, ask.JoinBody, Joined, who="none", process="hot",
    summary="A pilot joins", refused=(401,),
)
CLAIM = Call(
    "POST", "/v1/pilots/claim", Nothing, ask.ClaimBody, ClaimAnswer, who="pilot", process="hot",
    summary="A pilot asks for jobs",
)
HEARTBEAT = Call(
    "POST", "/v1/pilots/heartbeat", Nothing, ask.HeartbeatBody, HeartbeatAnswer, who="pilot", process="hot",
    summary="A pilot lives", most_bytes=REPORT_BODY,
)
REPORT = Call(
    "POST", "/v1/pilots/report", Nothing, ask.ReportsBody, ReportsAnswer, who="pilot", process="hot",
    summary="A pilot reports", most_bytes=REPORT_BODY,
)
LEAVE = Call(
    "POST", "/v1/pilots/leave", Nothing, ask.LeaveBody, Left, who="pilot", process="hot", summary="A pilot leaves"
)


# --- from the background process to the hot one -------------------------------------------------------------------------

# fmt: on


def _service(path: str, body: type[B], answer: type[A], most_bytes: int = REPORT_BODY) -> Call[Nothing, B, A]:
    return Call("POST", f"/v1/service/{path}", Nothing, body, answer, process="hot", most_bytes=most_bytes)


ALIVE = _service("alive", service.Alive, service.Done)
PREPARE_PILOTS = _service("pilots", list[service.NewPilot], service.Prepared)
PILOTS_SUBMITTED = _service("submitted", service.Outcomes, service.Accepted)
PILOT_ENDED = _service("ended", service.PilotEnd, service.Rescued)
PILOT_NOW = _service("pilot", service.PilotLoad, Raw)
ITERATION = _service("iteration", service.Iteration, service.Done)
REASONS = _service("reasons", service.Reasons, service.Changed)
NAME_QUEUES = _service("pool-queues", list[QueueId], service.NewQueues)
REKEY_POOLS = _service("pool-renewals", service.Renewals, service.Rekeyed, SUBMIT_BODY)
POOL_PASS = _service("pool-pass", service.Difference, service.PassDone, SUBMIT_BODY)
JUDGE_QUEUES = _service("pool-judgement", service.Judgement, service.Judged)
CLEAN_POOLS = _service("pool-cleaning", service.Cleaning, service.Removed)
UPLOADED = _service("sandbox", service.UploadedFile, service.Done)
PURGE = _service("purge", service.Old, service.Purged)
TIDY = _service("tidy", service.UnusedInputs, service.Tidied)
RECONCILE = _service("reconcile", service.Suspects, service.Repaired)
FORGET_IDLE = _service("forget-idle", Nothing, service.Done)

CALLS: tuple[Call[Any, Any, Any], ...] = tuple(one for one in vars().values() if isinstance(one, Call))
