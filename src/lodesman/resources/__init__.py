"""Resources: Site > CE > Queue with parameters, VO overlays, inheritance, and eligibility with reasons."""

from lodesman.resources.bitsets import Assessment, Change, NearestMiss, QueueTable, bits
from lodesman.resources.build import ResourceConfig
from lodesman.resources.criterion import Criterion, compile_requirements, judge
from lodesman.resources.draft import Fault
from lodesman.resources.eligibility import NodeVerdict, Resources, access_refusal, refusals
from lodesman.resources.inherit import Effective, effective_params
from lodesman.resources.kinds import Kind, ParameterType, TypeTable
from lodesman.resources.load import load_resources
from lodesman.resources.load_cfg import load_cfg
from lodesman.resources.load_toml import load_toml
from lodesman.resources.model import (
    ANY,
    ComputingElement,
    GroupConfig,
    Level,
    Queue,
    QueueId,
    ResourceTree,
    Site,
    Source,
    fold,
)
from lodesman.resources.reasons import (
    AccessDenied,
    MissingParameter,
    NotAmong,
    NotEqual,
    Reason,
    TooSmall,
    VersionTooOld,
    as_dict,
    describe,
)
from lodesman.resources.settings import QueueSettings, queue_settings

__all__ = [
    "ANY",
    "AccessDenied",
    "Assessment",
    "Change",
    "ComputingElement",
    "Criterion",
    "Effective",
    "Fault",
    "GroupConfig",
    "Kind",
    "Level",
    "MissingParameter",
    "NearestMiss",
    "NodeVerdict",
    "NotAmong",
    "NotEqual",
    "ParameterType",
    "Queue",
    "QueueId",
    "QueueSettings",
    "QueueTable",
    "Reason",
    "ResourceConfig",
    "ResourceTree",
    "Resources",
    "Site",
    "Source",
    "TooSmall",
    "TypeTable",
    "VersionTooOld",
    "access_refusal",
    "as_dict",
    "bits",
    "compile_requirements",
    "describe",
    "effective_params",
    "fold",
    "judge",
    "load_cfg",
    "load_resources",
    "load_toml",
    "queue_settings",
    "refusals",
]
