"""From a checked description to a task queue, or the reason why no queue could ever run the job.

Decisions: docs/adr/README.md, Jobs, answers and dry runs.
"""

from lodesman.decide.submission.exclusions import Exclusions, find_exclusions, never_text
from lodesman.decide.submission.optimizers import JobDraft, ban_of_nothing, optimize

__all__ = ["Exclusions", "JobDraft", "ban_of_nothing", "find_exclusions", "never_text", "optimize"]
