"""Calls between the two processes of a server; `calls` has those that are offered outside."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Raw

from lodesman.wire import accounts, groups, hosts, jsv, nodes, requests, server, service, task_queues, usage
from lodesman.wire.call import REPORT_BODY, SMALL_BODY, SUBMIT_BODY, Call, Nothing, get, post

B = TypeVar("B")
A = TypeVar("A")
# Each description of a batch is a dialogue with a script, and others may come before it.
_VERIFY_SECONDS = 600.0

# --- from the background process to the hot one -------------------------------------------------------------------------


def _service(path: str, body: type[B], answer: type[A], most_bytes: int = REPORT_BODY) -> Call[Nothing, B, A]:
    return post(f"/v1/service/{path}", body, answer, "service", "", process="inner", most_bytes=most_bytes)


HOT_METRICS = get("/v1/service/metrics", Nothing, server.HotMetrics, "service", "", process="inner")
ALIVE = _service("alive", service.BackgroundState, Nothing)
POOLS_OF_QUEUES = _service("pools-of-queues", requests.QueuesBody, task_queues.PoolsOfQueues)
PREPARE_PILOTS = _service("pilots", list[service.NewPilot], service.PreparedCount)
UNBIND = _service("unbind", service.UnbindOrder, service.RescuedCount)
PILOTS_SUBMITTED = _service("submitted", service.Outcomes, Nothing)
PILOTS_SEEN = _service("seen", dict[int, service.PilotSeen], Nothing)
PILOTS_ORDERED = _service("ordered", service.LeaveOrder, Nothing)
PILOT_ENDED = _service("ended", service.PilotEnd, service.RescuedCount)
LIMIT_BUCKETS = _service("limit-buckets", Nothing, list[service.BehindBucket])
LIMITED = _service("limited", service.LimitQuery, service.LimitAnswer)
PILOT_NOW = _service("pilot", service.PilotLoad, Raw)
BREAKERS = _service("breakers", list[service.StoredBreaker], Nothing)
ITERATION = _service("iteration", service.Iteration, Nothing)
REASONS = _service("reasons", service.Reasons, Nothing)
HOSTS_JUDGED = _service("hosts", hosts.HostVerdicts, Nothing)
USAGE_FOUND = _service("usage", groups.CorrectionUsage, Nothing, SUBMIT_BODY)
NUMBER_QUEUES = _service("queue-bits", list[nodes.QueueId], Nothing, SUBMIT_BODY)
REKEY_POOLS = _service("pool-renewals", service.Renewals, Nothing, SUBMIT_BODY)
POOL_PASS = _service("pool-pass", service.PassResult, service.PassNumber, SUBMIT_BODY)
JUDGE_QUEUES = _service("pool-judgement", service.QueueVerdicts, Nothing)
CLEAN_POOLS = _service("pool-cleaning", service.PoolCleaning, service.RemovedCount)
UPLOADED = _service("sandbox", service.UploadedFile, Nothing)
OUTPUT_STORED = _service("output", service.UploadedOutput, Nothing)
USAGE_ADDED = _service("usage-days", usage.UsageIncrement, Nothing, SUBMIT_BODY)
PURGE = _service("purge", service.PurgeOrder, service.PurgeResult)
TIDY = _service("tidy", service.UnusedInputs, service.TidyResult)
RECONCILE = _service("reconcile", service.Suspects, service.RepairCounts)
CHECK_LIMITS = _service("check-limits", Nothing, service.LimitCheck)
FORGET_IDLE = _service("forget-idle", Nothing, Nothing)
NOTE = _service("audit", list[accounts.AuditNote], Nothing)

# --- from the hot process to the background process ---------------------------------------------------------------------

VERIFY = post(
    "/v1/service/verify", jsv.VerifyBody, jsv.VerifyAnswer, "service", "", process="reading",
    most_bytes=SUBMIT_BODY + SMALL_BODY, timeout=_VERIFY_SECONDS,
)  # fmt: skip
