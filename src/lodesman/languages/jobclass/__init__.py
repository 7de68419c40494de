"""Job classes of Univa Grid Engine 8.1: administrators' templates, and what jobs may change."""

from lodesman.languages.jobclass.access import Violation, check, check_template, judge_class, refusal_sentence
from lodesman.languages.jobclass.attributes import CanonicalKey, JobValue, JobValues, entries_of
from lodesman.languages.jobclass.classes import Classes, classes_of
from lodesman.languages.jobclass.language import read_class, write_class
from lodesman.languages.jobclass.model import (
    ClassSnapshot,
    JobClass,
    fresh_template,
    new_class,
    snapshot_from_json,
)
from lodesman.languages.jobclass.request import ClearAttribute, EditEntry, Give, merge
from lodesman.languages.jobclass.rights import (
    ClassRefusal,
    choose_class,
    derive,
    refuse_delete,
    refuse_edit,
    refuse_name,
)

__all__ = [
    "CanonicalKey",
    "ClassRefusal",
    "ClassSnapshot",
    "Classes",
    "ClearAttribute",
    "EditEntry",
    "Give",
    "JobClass",
    "JobValue",
    "JobValues",
    "Violation",
    "check",
    "check_template",
    "choose_class",
    "classes_of",
    "derive",
    "entries_of",
    "fresh_template",
    "judge_class",
    "merge",
    "new_class",
    "read_class",
    "refusal_sentence",
    "refuse_delete",
    "refuse_edit",
    "refuse_name",
    "snapshot_from_json",
    "write_class",
]
