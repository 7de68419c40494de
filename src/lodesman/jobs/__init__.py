"""Jobs: descriptions in JDL, CFG and JSON, the checked JobSpec, parametric members, states.

The way of a description: `read_description` (text to record), `read_job` (record to checked Description),
`cohorts` (its kinds of job), `Template.expand` (one member). `write_description` leads back to text.
"""

from lodesman.jobs.attributes import ATTRIBUTES, KEY_FIELDS, Attribute, by_name
from lodesman.jobs.cohorts import MAX_COHORTS, Cohort, cohorts
from lodesman.jobs.description import read_job, read_jobs
from lodesman.jobs.faults import locate
from lodesman.jobs.formats import detect_form, read_description, write_description
from lodesman.jobs.input_names import input_names
from lodesman.jobs.parametric import Template, expand, needs_expansion, varying_key_fields
from lodesman.jobs.parsed import ARRAY_LIMITS, DEFAULT_LIMITS, Limits, ParsedRecord
from lodesman.jobs.sequences import MAX_MEMBERS, value_at
from lodesman.jobs.spec import Description, JobSpec, NamedSequence, Notice, ParametricMembers, Record
from lodesman.jobs.spec_json import members_from_json, members_to_json, spec_from_json, spec_to_json
from lodesman.jobs.states import ACTIVE, MOVES, TERMINAL, may_move
from lodesman.jobs.values import is_plain_name

__all__ = [
    "ACTIVE",
    "ARRAY_LIMITS",
    "ATTRIBUTES",
    "DEFAULT_LIMITS",
    "KEY_FIELDS",
    "MAX_COHORTS",
    "MAX_MEMBERS",
    "MOVES",
    "TERMINAL",
    "Attribute",
    "Cohort",
    "Description",
    "JobSpec",
    "Limits",
    "NamedSequence",
    "Notice",
    "ParametricMembers",
    "ParsedRecord",
    "Record",
    "Template",
    "by_name",
    "cohorts",
    "detect_form",
    "expand",
    "input_names",
    "is_plain_name",
    "locate",
    "may_move",
    "members_from_json",
    "members_to_json",
    "needs_expansion",
    "read_description",
    "read_job",
    "read_jobs",
    "spec_from_json",
    "spec_to_json",
    "value_at",
    "varying_key_fields",
    "write_description",
]
