"""The calls about jobs, of the table in `calls`: what most commands of users say, without the types of all others."""

from __future__ import annotations

from lodesman.wire import job_queries, jobs, requests, waiting, why_jobs
from lodesman.wire.call import SUBMIT_BODY, Call, Nothing, get, post

# fmt: off
SUBMIT: Call[Nothing, requests.SubmitBody, jobs.Submission | jobs.TrialSubmission] = post(
    "/v1/jobs", requests.SubmitBody, (jobs.Submission, jobs.TrialSubmission), "jobs:write", "Submit jobs",
    most_bytes=SUBMIT_BODY, repeatable=True, refused=(422,), timeout=300.0,
)
JOBS = get("/v1/jobs", job_queries.JobsQuery, jobs.Jobs, "jobs:read", "List jobs")
JOB_COUNTS = get("/v1/jobs/counts", job_queries.CountsQuery, jobs.Counts, "jobs:read", "Jobs by owner, group, state")
SUBMISSIONS = get(
    "/v1/submissions", job_queries.SubmissionsQuery, job_queries.Submissions, "jobs:read", "Submissions, jobs counted"
)
READERS = get(
    "/v1/submissions/{submission}/readers", job_queries.SubmissionAt, job_queries.SubmissionReaders, "jobs:read",
    "With whom a submission is shared", refused=(404,),
)
SET_READERS = post(
    "/v1/submissions/readers", job_queries.ReadersBody, job_queries.SubmissionReaders, "jobs:write",
    "Let users and groups read a submission, or no more", refused=(404,),
)
CONTROL = Call(
    "POST", "/v1/jobs/control", job_queries.ControlQuery, job_queries.ControlBody, jobs.Controlled, "jobs:write", "hot",
    "Kill, hold, release, reschedule, delete", refused=(404,),
)
CHANGE_JOBS = post(
    "/v1/jobs/change", jobs.ChangeBody, jobs.JobsChanged, "jobs:write", "Change attributes of waiting and held jobs",
    refused=(404, 422),
)
WAIT = get(
    "/v1/jobs/wait", waiting.WaitQuery, waiting.Waited, "jobs:read", "Wait until jobs have ended", process="hot",
    refused=(404,), timeout=waiting.LONGEST_WAIT + 30.0,
)
EVENTS: Call[waiting.EventsQuery, Nothing, None] = get(
    "/v1/jobs/events", waiting.EventsQuery, (), "jobs:read", "The changes of jobs as server-sent events",
    process="hot", raw="text/event-stream", refused=(404,),
    events=(("states", waiting.JobStates), ("change", waiting.StateChanged), ("resync", waiting.JobStates),
            ("end", waiting.StreamEnded)),
)
JOB = get("/v1/jobs/{job}", requests.JobAt, jobs.JobInFull, "jobs:read", "One job with attempts and events")
JOB_WHY: Call[requests.JobInQueue, Nothing, why_jobs.JobWaits | why_jobs.JobWaitsNot] = get(
    "/v1/jobs/{job}/why", requests.JobInQueue, (why_jobs.JobWaits, why_jobs.JobWaitsNot), "jobs:read",
    "Why a job waits, and what would let it run",
)
JOB_DESCRIPTION = get(
    "/v1/jobs/{job}/description", requests.JobInForm, jobs.JobDescription, "jobs:read", "The description of a job"
)
JOB_LOGS = get(
    "/v1/jobs/{job}/logs", requests.JobAt, jobs.Logs, "jobs:read", "The last 64 kB of output", process="hot"
)
JOB_OUTPUT: Call[requests.JobAt, Nothing, None] = get(
    "/v1/jobs/{job}/output", requests.JobAt, (), "jobs:read", "The output sandbox: a tar.gz", raw="application/gzip"
)
PUT_OUTPUT = Call(
    "PUT", "/v1/jobs/{job}/attempts/{attempt}/output", requests.AttemptAt, Nothing, jobs.Stored, "pilot",
    summary="A pilot stores an output sandbox", upload="application/gzip",
)
PUT_SANDBOX = post(
    "/v1/sandboxes", Nothing, jobs.Stored, "jobs:write", "Upload an input file",
    process="reading", upload="application/octet-stream",
)
SANDBOX = get(
    "/v1/sandboxes/{digest}", requests.SandboxAt, jobs.Stored, "any",
    "Whether a file is there (users), or the file (pilots)", raw="application/octet-stream",
)
# fmt: on
