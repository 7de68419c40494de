from lodesman.python import AsyncClient as AsyncClient
from lodesman.python import Client as Client
from lodesman.python import Job as Job
from lodesman.python import JobExecutor as JobExecutor
from lodesman.python import JobFailed as JobFailed
from lodesman.python import Jobs as Jobs
from lodesman.python import JobState as JobState
from lodesman.python import SubmissionWarning as SubmissionWarning

__version__: str
