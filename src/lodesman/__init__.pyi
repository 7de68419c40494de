from lodesman.user.python import AsyncClient as AsyncClient
from lodesman.user.python import Client as Client
from lodesman.user.python import Job as Job
from lodesman.user.python import JobExecutor as JobExecutor
from lodesman.user.python import JobFailed as JobFailed
from lodesman.user.python import Jobs as Jobs
from lodesman.user.python import JobState as JobState
from lodesman.user.python import SubmissionWarning as SubmissionWarning

__version__: str
