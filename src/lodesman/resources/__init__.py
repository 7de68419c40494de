"""Resources: Site > CE > Queue with parameters, VO overlays, inheritance, and eligibility with reasons."""

from lodesman.answers.nodes import NodePath, QueueId
from lodesman.resources.build import ResourceConfig
from lodesman.resources.criterion import (
    Criterion,
    access_refusal,
    capacities,
    capacity_order,
    compile_requirements,
    judge,
    refusals,
)
from lodesman.resources.draft import Fault, refuse
from lodesman.resources.inherit import Effective, effective_params
from lodesman.resources.kinds import ParameterType, TypeTable
from lodesman.resources.load import fault_of, load_resources
from lodesman.resources.load_cfg import load_cfg
from lodesman.resources.load_toml import load_toml, parse_toml
from lodesman.resources.model import (
    ANY,
    CeDefaults,
    ComputingElement,
    GroupConfig,
    Queue,
    ResourceTree,
    Site,
    Source,
    fold,
)
from lodesman.resources.origin import Origin, Said, find_nodes, origins
from lodesman.resources.queue_table import Numbering, QueueTable
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
from lodesman.resources.toml_lines import line_of, lines_of

__all__ = [
    "ANY",
    "AccessDenied",
    "CeDefaults",
    "ComputingElement",
    "Criterion",
    "Effective",
    "Fault",
    "GroupConfig",
    "MissingParameter",
    "NodePath",
    "NotAmong",
    "NotEqual",
    "Numbering",
    "Origin",
    "ParameterType",
    "Queue",
    "QueueId",
    "QueueSettings",
    "QueueTable",
    "Reason",
    "ResourceConfig",
    "ResourceTree",
    "Said",
    "Site",
    "Source",
    "TooSmall",
    "TypeTable",
    "VersionTooOld",
    "access_refusal",
    "as_dict",
    "capacities",
    "capacity_order",
    "compile_requirements",
    "describe",
    "effective_params",
    "fault_of",
    "find_nodes",
    "fold",
    "judge",
    "line_of",
    "lines_of",
    "load_cfg",
    "load_resources",
    "load_toml",
    "origins",
    "parse_toml",
    "queue_settings",
    "refusals",
    "refuse",
]
