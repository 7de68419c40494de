"""Jobs: descriptions in JDL, CFG and JSON, the checked JobSpec, parametric members, states.

`read_description` (text to record), `read_job` (record to checked Description), `cohorts` (kinds of job),
`Template.expand` (one member), `write_description` (back to text).
"""

from lodesman.languages.jobs.attributes import ATTRIBUTES, Attribute, by_name, find_spelling, locate, place_of
from lodesman.languages.jobs.cohorts import CohortSpec, cohorts
from lodesman.languages.jobs.description import read_description, read_job, write_description
from lodesman.languages.jobs.members import Template, check_program, common_name, input_names, list_programs
from lodesman.languages.jobs.record import ARRAY_LIMITS, ParsedRecord, Record
from lodesman.languages.jobs.retries import read_retry, retry_text
from lodesman.languages.jobs.spec import Description, JobSpec, ParametricMembers, spec_from_json, spec_to_json
from lodesman.languages.jobs.values import is_plain_name

__all__ = [
    "ARRAY_LIMITS",
    "ATTRIBUTES",
    "Attribute",
    "CohortSpec",
    "Description",
    "JobSpec",
    "ParametricMembers",
    "ParsedRecord",
    "Record",
    "Template",
    "by_name",
    "check_program",
    "cohorts",
    "common_name",
    "find_spelling",
    "input_names",
    "is_plain_name",
    "list_programs",
    "locate",
    "place_of",
    "read_description",
    "read_job",
    "read_retry",
    "retry_text",
    "spec_from_json",
    "spec_to_json",
    "write_description",
]
