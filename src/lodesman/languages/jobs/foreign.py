"""Other systems' attributes that change a job, with what to use instead, and files of HTCondor."""

from __future__ import annotations

import re
from typing import Final

from lodesman.base.errors import InvalidRequest

# Names with blanks between -> what to do. They are attributes of DIRAC's and gLite's JDL, of submit files of HTCondor, and
# options and job records of Slurm. To keep one as unknown would promise what is not held: a job would run before the one
# that it depends on.
_TABLE: Final = {
    "Dependencies Dependency NodesCollocation": "Submit them apart, and give AfterOk, the ids of those to wait for.",
    "Hold OnExitHold PeriodicHold PeriodicRelease PeriodicRemove OnExitRemove LeaveInQueue":
        "Jobs are held by command: lode hold JOB.",
    "StartTime Begin EligibleTime DeferralTime CronMinute CronHour CronDayOfMonth CronMonth CronDayOfWeek":
        "Submit it when it shall run, with at or cron.",
    "Deadline EndTime ExpiryTime": "Kill it by then: lode kill JOB.",
    "Nodes NumNodes MinNodes MaxNodes NodeNumber HostNumber MachineCount NTasks NumTasks NTasksPerNode TasksPerNode":
        "A job runs on one node: give NumberOfProcessors, its number of cores.",
    "MinNumberOfProcessors MaxNumberOfProcessors CPUNumber NumCPUs CPUs CPUsPerTask RequestCPUs SMPGranularity MinCPUs":
        "Give NumberOfProcessors, the number of cores.",
    "WholeNode WholeNodes": "Give NumberOfProcessors as the nodes have, or ask for them by a Tag of their queues.",
    "InputData InputDataPolicy InputDataModule DataRequirements DataAccessProtocol DataCatalogType StorageIndex "
    "AncestorDepth ReplicaSelection":
        "No data is found or staged: name files in InputSandbox, or let the payload fetch them.",
    "OutputData OutputSE OutputPath OutputDataModule OutputSandboxDestURI OutputSandboxBaseDestURI":
        "No data goes to storage elements: name files in OutputSandbox, or let the payload copy them.",
    "ParametricInputData ParametricInputSandbox":
        "Give Parameters, and InputSandbox with %s: each job takes files of its own.",
    "InputSandboxBaseURI ZippedISB TransferInputFiles TransferInput": "Give InputSandbox with local files.",
    "TransferOutputFiles TransferOutput TransferOutputRemaps ShouldTransferFiles WhenToTransferOutput StreamOutput":
        "Give OutputSandbox; files go back when the job has ended.",
    "Input": "Give StdInput.",
    "Output": "Give StdOutput.",
    "Error": "Give StdError.",
    "Log UserLog": "There is no log file: lode events JOB.",
    "InitialDir Chdir WorkDir": "Each job has a directory of its own; name files in InputSandbox.",
    "GetEnv Export ExportFile ExecutionEnvironment": "Give Environment with each variable.",
    "NotifyEmail NotifyUser Notification MailUser MailType UserContact": "No mail is sent: lode status.",
    "RequestMemory Mem MinRAM MinMemoryNode MinMemoryCPU MemPerNode MemPerCPU MemPerGPU":
        "Give Memory in MB, for all cores.",
    "RequestDisk TmpDisk Tmp MinTmpDiskNode": "Give Requirements, if sites declare their disks.",
    "MaxCPUTime CPUTimeLimit": "Give CPUTime in seconds.",
    "Time TimeLimit TimeMin MaxRuntime JobFlavour MaxWallClockTime MaxWallTime AllowedJobDuration AllowedExecuteDuration "
    "Walltimelimit":
        "Give WallTime in seconds.",
    "JobRequirements": "Give what it holds as attributes: CPUTime, NumberOfProcessors, Memory, Site, Platform, Tag.",
    "RetryCount ShallowRetryCount DefaultNodeRetryCount DefaultNodeShallowRetryCount MaxRetries SuccessExitCode RetryUntil "
    "Requeue NoRequeue":
        "Give MaxAttempts: a job goes back if its pilot or site fails, never by its exit code.",
    "Rank FuzzyRank Prefer": "Queues are not ranked: Site, Tag and Requirements say where it may run.",
    "Universe DockerImage ContainerImage Container": "Let the payload start the container; ask for its program by a Tag.",
    "SoftwarePackages SoftwareDistModule": "Let the payload set them up; ask for sites that have them by a Tag.",
    "Partition Clusters QOS Reservation": "Give Site, GridCE or a Tag.",
    "Account AccountingGroup AccountingGroupUser WCKey": "Give OwnerGroup, one of your groups.",
    "Gres GPUs GPUsPerNode GPUsPerTask RequestGPUs NumberOfGPUs MinNumberOfGPUs MaxNumberOfGPUs Licenses Constraint "
    "Features ConcurrencyLimits":
        "Give a Tag, or Requirements, that sites declare.",
    "NodeList NodeFile SubmitTo": "Give GridCE or Site.",
    "Station SamStation StationName StationNames SamStationName SamStationNames": "Give Stations, a list of names.",
    "Exclude ExcNodeList ExcludeNodes": "Give BannedSite.",
    "SystemConfig Architecture OperatingSystem": "Give Platform.",
    "Prologue PrologueArguments Epilogue EpilogueArguments PreCmd PostCmd": "Let the Executable call it.",
    "Array ArrayInx Queue MaxMaterialize MaxIdle JobSteps": "Give Parameters: one description for many jobs.",
    "Nice NiceUser": "Give Priority = 0.",
    "OwnerDN OwnerCN UserDN": "Your token says who you are: leave it out.",
    "MyProxyServer X509UserProxy UseX509UserProxy ProxyFile": "Your token says who you are; give a proxy in InputSandbox.",
    "PerusalFileEnable PerusalTimeInterval PerusalFilesDestURI": "Output is live by itself: lode logs --follow JOB.",
}  # fmt: skip
# Names that mean something only with some values: what gLite calls a description of several jobs.
_OF_VALUES: Final = {
    (
        "type",
        "collection",
    ): "Submit each of its jobs apart, or those that are alike as one description with Parameters.",
    ("type", "dag"): "Submit its jobs apart, and give AfterOk, the ids of those to wait for.",
}
_MARKS = re.compile(r"[-_+ ]")
_INSTEAD: Final = {
    _MARKS.sub("", name).lower(): instead for names, instead in _TABLE.items() for name in names.split()
}


def instead_of(name: str, value: object = "") -> str:
    """What to use instead of another system's attribute, '' if it is none; `-`, `_` and case do not count."""
    folded = _MARKS.sub("", name).lower()
    text = value.lower() if isinstance(value, str) else ""
    return _INSTEAD.get(folded) or _OF_VALUES.get((folded, text), "")


# --- files of HTCondor ---------------------------------------------------------------------

_HEAD: Final = 256 << 10
_FIRST_LINE: Final = re.compile(r"#![^\n]*\bcondor_submit(_dag)?\b")
_QUEUE: Final = re.compile(r"^[ \t]*queue\b(?![ \t]*=)", re.MULTILINE | re.IGNORECASE)
_SETTING: Final = re.compile(
    r"^[ \t]*(?:executable|universe|arguments|batch_name|log|output|error|requirements|"
    r"(?:[+]|my\.)\w+|(?:transfer|request)_\w+)[ \t]*=",
    re.MULTILINE | re.IGNORECASE,
)
_NODE: Final = re.compile(
    r"^[ \t]*(?:JOB|SUBDAG|SPLICE)[ \t]+\S+[ \t]+\S+|^[ \t]*PARENT[ \t].*\bCHILD\b",
    re.MULTILINE | re.IGNORECASE,
)
# A DAG may have no such line: then each line is one of these.
_IN_DAGS: Final = re.compile(
    r"(?:FINAL|SERVICE|PROVISIONER)[ \t]+\S+[ \t]+\S|"
    r"(?:INCLUDE|CONFIG|DOT|ENV|VARS|RETRY|SCRIPT|SET_JOB_ATTR|CATEGORY|MAXJOBS|PRIORITY|PRE_SKIP|NODE_STATUS_FILE|"
    r"JOBSTATE_LOG|SAVE_POINT_FILE|ABORT-DAG-ON|CONNECT)[ \t]+\S|REJECT$",
    re.IGNORECASE,
)
_SUBMIT_FILE: Final = "a submit file of HTCondor"
_DAG: Final = "a DAG of HTCondor (DAGMan)"
_HINTS: Final = {
    _SUBMIT_FILE: "Describe the job in JDL, or give its program: lode submit --array 0-9 --files in.txt -- ./prog %s.",
    _DAG: "Submit its nodes one after the other, each with the ids of its parents: lode submit --after-ok 12-20.",
}


def kind_of_file(text: str) -> str:
    """A submit file or a DAG of HTCondor; '' for other texts."""
    text = text[:_HEAD]
    if text.startswith("#!"):
        first = _FIRST_LINE.match(text)
        return (_DAG if first[1] else _SUBMIT_FILE) if first else ""
    if _QUEUE.search(text) and _SETTING.search(text):
        return _SUBMIT_FILE
    return _DAG if _NODE.search(text) or _is_rest_of_dag(text) else ""


def _is_rest_of_dag(text: str) -> bool:
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    return bool(lines) and all(map(_IN_DAGS.match, lines))


def fault_of_file(text: str) -> InvalidRequest | None:
    """The refusal of a file of HTCondor; None for other texts."""
    kind = kind_of_file(text)
    return InvalidRequest(f"This is {kind}, which is not read here.", hint=_HINTS[kind]) if kind else None
