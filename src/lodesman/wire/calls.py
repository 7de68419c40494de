"""Every operation of the server, once: dispatch, rights, the OpenAPI document and clients follow this table.

The calls about jobs stand in `job_calls`, which a command for jobs loads alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

from lodesman.wire import (
    accounts,
    director,
    groups,
    hosts,
    inner_calls,
    job_calls,
    job_classes,
    nodes,
    pilots,
    plans,
    quotas,
    requests,
    server,
    site_ads,
    site_tests,
    task_queues,
    usage,
    why_pilots,
    why_queues,
)
from lodesman.wire.call import JOIN_BODY, PLAN_BODY, REPORT_BODY, SUBMIT_BODY, Call, Nothing, get, post
from lodesman.wire.job_calls import CHANGE_JOBS as CHANGE_JOBS  # noqa: PLC0414
from lodesman.wire.job_calls import CONTROL as CONTROL  # noqa: PLC0414
from lodesman.wire.job_calls import EVENTS as EVENTS  # noqa: PLC0414
from lodesman.wire.job_calls import JOB as JOB  # noqa: PLC0414
from lodesman.wire.job_calls import JOB_COUNTS as JOB_COUNTS  # noqa: PLC0414
from lodesman.wire.job_calls import JOB_DESCRIPTION as JOB_DESCRIPTION  # noqa: PLC0414
from lodesman.wire.job_calls import JOB_LOGS as JOB_LOGS  # noqa: PLC0414
from lodesman.wire.job_calls import JOB_OUTPUT as JOB_OUTPUT  # noqa: PLC0414
from lodesman.wire.job_calls import JOB_WHY as JOB_WHY  # noqa: PLC0414
from lodesman.wire.job_calls import JOBS as JOBS  # noqa: PLC0414
from lodesman.wire.job_calls import PUT_OUTPUT as PUT_OUTPUT  # noqa: PLC0414
from lodesman.wire.job_calls import PUT_SANDBOX as PUT_SANDBOX  # noqa: PLC0414
from lodesman.wire.job_calls import READERS as READERS  # noqa: PLC0414
from lodesman.wire.job_calls import SANDBOX as SANDBOX  # noqa: PLC0414
from lodesman.wire.job_calls import SET_READERS as SET_READERS  # noqa: PLC0414
from lodesman.wire.job_calls import SUBMISSIONS as SUBMISSIONS  # noqa: PLC0414
from lodesman.wire.job_calls import SUBMIT as SUBMIT  # noqa: PLC0414
from lodesman.wire.job_calls import WAIT as WAIT  # noqa: PLC0414

Q = TypeVar("Q")
B = TypeVar("B")
A = TypeVar("A")
# A plan is given up by the server after a minute, and may have waited for others.
_PLAN_SECONDS = 180.0


# fmt: off
# --- plans --------------------------------------------------------------------------------------------------------------

PLAN_JOB = post(
    "/v1/plan/job", requests.PlanJobBody, plans.JobPlan, "jobs:read", "Plan a submission: what would become of it",
    process="reading", most_bytes=SUBMIT_BODY, repeatable=True, timeout=_PLAN_SECONDS,
)
PLAN_RESOURCES = post(
    "/v1/plan/resources", requests.PlanResourcesBody, plans.ResourcesPlan, "admin",
    "Plan other resources: what they would change",
    process="reading", most_bytes=PLAN_BODY, repeatable=True, timeout=_PLAN_SECONDS,
)
PLAN_DIRECTOR = post(
    "/v1/plan/director", requests.PlanDirectorBody, plans.DirectorPlans, "admin",
    "Plan an iteration of the director by several policies",
    process="reading", most_bytes=PLAN_BODY, repeatable=True, refused=(404,), timeout=_PLAN_SECONDS,
)
PLAN_GATES = post(
    "/v1/plan/gates", site_ads.PlanGatesBody, plans.PlannedIteration, "admin",
    "Plan other ads of sites: what the director would do",
    process="reading", most_bytes=PLAN_BODY, repeatable=True, refused=(404,), timeout=_PLAN_SECONDS,
)
PLAN_QUOTAS = post(
    "/v1/plan/quotas", quotas.PlanQuotasBody, quotas.QuotaPlan, "admin", "Plan quota sets: what they would change",
    process="reading", most_bytes=2 * quotas.MOST_TEXT, repeatable=True, timeout=_PLAN_SECONDS,
)
PLAN_SHARES = post(
    "/v1/plan/shares", requests.PlanSharesBody, plans.SharesPlan, "admin", "Plan other shares: what they would change",
    process="reading", most_bytes=PLAN_BODY, repeatable=True, refused=(404,), timeout=_PLAN_SECONDS,
)

# --- pilots, for users --------------------------------------------------------------------------------------------------

PILOTS = get("/v1/pilots", requests.PilotsQuery, pilots.Pilots, "pilots:read", "Pilots")
PILOT = get("/v1/pilots/{pilot}", requests.PilotAt, pilots.PilotInFull, "pilots:read", "A pilot (number or stamp)")
PILOT_WHY = get(
    "/v1/pilots/{pilot}/why", requests.PilotAt, why_pilots.PilotWhy, "pilots:read",
    "Why a pilot (number or stamp) got nothing",
)
PILOT_LOGS = get(
    "/v1/pilots/{pilot}/logs", requests.PilotAt, pilots.PilotLog, "pilots:read",
    "The end of what a pilot (number or stamp) wrote, from its batch system", refused=(502,),
)
PILOT_FILES = post(
    "/v1/pilots/files", pilots.PilotFilesBody, pilots.PilotFiles, "admin",
    "Make files of pilots that people start themselves, in a queue with the backend manual", process="reading",
    refused=(404, 409),
)
DRAIN = post(
    "/v1/pilots/drain", requests.DrainBody, pilots.PilotsDrained, "admin", "Let pilots finish and leave", repeatable=True
)

# --- where jobs wait and can run ----------------------------------------------------------------------------------------

TASK_QUEUES = get(
    "/v1/task-queues", requests.TaskQueuesQuery, task_queues.TaskQueueList, "jobs:read", "Task queues with waiting jobs"
)
WAITING_REASONS = get(
    "/v1/task-queues/reasons", Nothing, task_queues.WaitingReasons, "jobs:read",
    "Why jobs wait: jobs and task queues by pending reason",
)
POOLS = get(
    "/v1/submit-pools", requests.PoolsQuery, task_queues.Pools, "pilots:read",
    "SubmitPools: requirements, queues, jobs, the last pass",
)
POOL = get(
    "/v1/submit-pools/{pool}", requests.PoolAt, task_queues.PoolInFull, "pilots:read",
    "One SubmitPool, by the beginning of its id", refused=(409,),
)
SERVED_POOLS = post(
    "/v1/submit-pools/for-queues", requests.QueuesBody, task_queues.PoolsOfQueues, "pilot or pilots:read",
    "The SubmitPools that CE queues serve", repeatable=True, refused=(404,),
)
SITES = get("/v1/sites", requests.AllQuery, nodes.Sites, "pilots:read", "Sites, and what is closed")
CLOSE_SITE = post(
    "/v1/sites/close", requests.CloseSiteBody, nodes.SiteClosed, "admin", "Send no pilots to a site, CE or queue",
    repeatable=True, refused=(404,),
)
BREAKER = post(
    "/v1/queues/breaker", nodes.BreakerBody, nodes.BreakerOrdered, "admin",
    "Open or close the breaker of a queue, or let it move by itself", repeatable=True, refused=(404,),
)
OPEN_SITE = post(
    "/v1/sites/open", requests.OpenSiteBody, nodes.SiteOpened, "admin", "Open what was closed", refused=(409,)
)
ADVERTISE = post(
    "/v1/sites/ad", site_ads.SiteAdBody, site_ads.AdTaken, "site", "A site advertises itself: its jobs and its limits",
    most_bytes=4 * site_ads.MOST_AD, refused=(404, 409),
)
SITE_ADS = get("/v1/sites/ads", requests.AllQuery, site_ads.SiteAds, "pilots:read", "The newest ad of each site")
SITE_GATE = get(
    "/v1/sites/gate", site_ads.SiteAt, site_ads.GateInFull, "site or pilots:read",
    "What a site takes now, why not more, and what it advertised in the last day", refused=(404,),
)
SITE_TOKEN = post(
    "/v1/sites/token", site_ads.SiteTokenBody, accounts.Token, "admin", "Make a token with which a site advertises itself",
    refused=(404,),
)
TEST_SITE = post(
    "/v1/site-tests", site_tests.SiteTestBody, site_tests.SiteTest, "admin",
    "Test a site, CE or queue: send test jobs there", process="reading", refused=(404,),
)
SITE_TEST = get(
    "/v1/site-tests/{test}", site_tests.SiteTestAt, site_tests.SiteTest, "admin", "A test of a site: what it found so far"
)
STOP_SITE_TEST = Call(
    "DELETE", "/v1/site-tests/{test}", site_tests.SiteTestAt, Nothing, site_tests.SiteTest, "admin",
    summary="Stop a test of a site; its jobs are cancelled",
)
HOSTS = get("/v1/hosts", requests.AllQuery, hosts.Hosts, "pilots:read", "Hosts of pilots, and which get no jobs")
CLOSE_HOST = post(
    "/v1/hosts/close", hosts.CloseHostBody, hosts.HostChanged, "admin", "Give no jobs to pilots of a host",
    repeatable=True,
)
OPEN_HOST = post(
    "/v1/hosts/open", hosts.OpenHostBody, hosts.HostChanged, "admin", "Give jobs to pilots of a host again", repeatable=True
)
QUOTAS = get("/v1/quotas", Nothing, quotas.QuotaSets, "pilots:read", "Resource quota sets", process="hot")
QUOTA_USES = get(
    "/v1/quotas/use", quotas.UsesQuery, quotas.QuotaUses, "pilots:read",
    "What is used of limits, by whom, and who waits behind", process="reading",
)
QUOTA_RESOURCES = get(
    "/v1/quotas/resources", Nothing, quotas.QuotaResources, "pilots:read", "Resources that rules may limit", process="hot"
)
SET_QUOTAS = post(
    "/v1/quotas", quotas.QuotaTextBody, quotas.QuotasChanged, "admin", "Add or change quota sets, or check their text",
    most_bytes=2 * quotas.MOST_TEXT, refused=(404, 409),
)
DROP_QUOTAS = post(
    "/v1/quotas/remove", quotas.DropQuotasBody, quotas.QuotasChanged, "admin", "Remove quota sets", refused=(404,)
)
JOB_CLASSES = get(
    "/v1/job-classes", requests.AllQuery, job_classes.JobClasses, "pilots:read", "Job classes by variant", process="hot"
)
JOB_CLASS = get(
    "/v1/job-classes/text", job_classes.ClassAt, job_classes.ClassInFull, "pilots:read",
    "One job class: its text, and what jobs of a variant get", process="hot", refused=(404,),
)
SET_CLASSES = post(
    "/v1/job-classes", job_classes.ClassTextBody, job_classes.ClassesChanged, "jobs:write",
    "Add or change job classes, or check their text", most_bytes=2 * job_classes.MOST_TEXT, refused=(404, 409),
)
DROP_CLASSES = post(
    "/v1/job-classes/remove", job_classes.DropClassesBody, job_classes.ClassesChanged, "jobs:write",
    "Remove job classes", refused=(404, 409),
)
SWITCH_CLASSES = post(
    "/v1/job-classes/switch", job_classes.SwitchClassesBody, job_classes.ClassesChanged, "jobs:write",
    "Enable or disable job classes, or variants of them", repeatable=True, refused=(404, 409),
)
QUEUES = get("/v1/queues", requests.QueuesQuery, nodes.Queues, "pilots:read", "CE queues with effective parameters")
QUEUE_WHY = get(
    "/v1/queues/why", requests.NodeQuery, why_queues.QueueExplained, "pilots:read",
    "Why no pilots are sent to a CE queue", refused=(404,),
)
RESOURCES = get(
    "/v1/resources", requests.NodeQuery, nodes.ResourceNode, "pilots:read",
    "A site, CE or queue: every value, and where it is written", refused=(404,),
)
CONFIGURATION = get(
    "/v1/configuration", Nothing, server.Configuration, "pilots:read", "The configuration in use, and what was refused"
)
USAGE = get(
    "/v1/usage", Nothing, server.Usage, "jobs:read", "Job states, actual and target shares, times, failures"
)
USED = get(
    "/v1/usage/days", usage.UsageQuery, usage.UsageOfDays, "jobs:read",
    "What jobs used, by user, group, site, VO, job class or JobGroup; kept after jobs are purged",
)
PILOT_HOURS = get(
    "/v1/usage/pilots", usage.PilotHoursQuery, usage.HeldOfDays, "pilots:read",
    "What pilots held, and what payloads used of it, by queue, site, group or VO",
)
DIRECTOR = get(
    "/v1/director", Nothing, director.DirectorAnswer, "pilots:read", "The director's last iteration with its arithmetic"
)

# --- users and the server -----------------------------------------------------------------------------------------------

ME = get("/v1/me", Nothing, accounts.Me, "any", "Who this token belongs to")
ADD_USER = post(
    "/v1/users", accounts.AccountBody, accounts.UserMade, "vo-admin", "Make or change a user", refused=(409,),
    repeatable=True,
)
USERS = get("/v1/users", requests.AllQuery, accounts.Users, "vo-admin", "Users")
DISABLE_USER = post(
    "/v1/users/disable", accounts.DisableBody, accounts.UserDisabled, "vo-admin", "Disable or enable a user",
    repeatable=True, refused=(404, 409),
)
REMOVE_USER = post(
    "/v1/users/remove", accounts.RemoveUserBody, accounts.UserRemoved, "vo-admin",
    "Remove a user without jobs under way", refused=(404, 409),
)
IMPORT_USERS = post(
    "/v1/users/import", accounts.ImportUsersBody, accounts.ImportedUsers, "vo-admin", "Make users, all or none",
    refused=(409,), repeatable=True,
)
TOKENS = get(
    "/v1/tokens", requests.AllQuery, accounts.Tokens, "user", "One's tokens, for administrators all (never their text)"
)
ISSUE_TOKEN = post("/v1/tokens", accounts.TokenBody, accounts.Token, "user", "Issue a token", refused=(404, 409))
REVOKE_TOKEN = Call(
    "DELETE", "/v1/tokens/{prefix}", accounts.TokenAt, Nothing, accounts.Revoked, "user", "hot", "Revoke a token",
    refused=(409,),
)
GROUPS = get("/v1/groups", Nothing, groups.GroupRows, "jobs:read", "Groups with their shares, and who set them")
GROUP = get(
    "/v1/groups/{group}", groups.GroupAt, groups.GroupInFull, "jobs:read", "A group, and what was done to it"
)
SET_GROUP_SHARE = post(
    "/v1/groups/share", groups.GroupShareBody, groups.GroupRow, "vo-admin", "Set the share of a group, or take it back",
    refused=(404, 409),
)
SET_GROUP_USERS = post(
    "/v1/groups/users", groups.GroupUsersBody, groups.GroupRow, "vo-admin", "Let users join a group or leave it",
    refused=(404, 409), repeatable=True,
)
AUDIT = get("/v1/audit", accounts.AuditQuery, accounts.Audit, "admin", "The audit trail: who did what, when and from where")
HEALTH = get("/health", Nothing, server.Health, "none", "Is the server well", process="hot")
OPENAPI = get("/v1/openapi.json", Nothing, dict[str, Any], "none", "This document")
METRICS: Call[Nothing, Nothing, None] = get(
    "/metrics", Nothing, (), "pilots:read", "Prometheus metrics", raw="text/plain"
)

# --- pilots, for themselves ---------------------------------------------------------------------------------------------

JOIN = post(
    "/v1/pilots/join", requests.JoinBody, pilots.PilotJoined, "none", "A pilot joins", refused=(401,), most_bytes=JOIN_BODY
)
CLAIM = post(
    "/v1/pilots/claim", requests.ClaimBody, pilots.ClaimAnswer, "pilot", "A pilot asks for jobs", most_bytes=JOIN_BODY
)
HEARTBEAT = post(
    "/v1/pilots/heartbeat", requests.HeartbeatBody, pilots.HeartbeatAnswer, "pilot", "A pilot lives",
    most_bytes=REPORT_BODY,
)
REPORT = post(
    "/v1/pilots/report", requests.ReportsBody, pilots.ReportsAnswer, "pilot", "A pilot reports", most_bytes=REPORT_BODY
)
LEAVE = post("/v1/pilots/leave", requests.LeaveBody, Nothing, "pilot", "A pilot leaves")
# fmt: on

_TABLES = (vars(job_calls), globals(), vars(inner_calls))
CALLS: tuple[Call[Any, Any, Any], ...] = tuple(
    dict.fromkeys(call for table in _TABLES for call in table.values() if isinstance(call, Call))
)
