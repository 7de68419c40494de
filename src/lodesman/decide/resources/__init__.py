"""Resources: Site > CE > Queue with parameters, VO overlays, inheritance, and eligibility with reasons.

Decisions: docs/adr/README.md, The director and its places.
"""

from lodesman.decide.resources.backends import LOCAL, MANUAL, TYPES, backend_type, place_of
from lodesman.decide.resources.draft import Fault, refuse
from lodesman.decide.resources.inherit import EffectiveParam, all_queues, effective_params
from lodesman.decide.resources.kinds import ParameterType, TypeTable
from lodesman.decide.resources.load import ResourceConfig, fault_of, load_resources
from lodesman.decide.resources.model import ANY, FilePosition, GroupConfig, Node, ResourceTree, fold
from lodesman.decide.resources.place_limits import PlaceLimit
from lodesman.decide.resources.queue_table import QueueTable
from lodesman.decide.resources.requirement import Mismatch, Requirement, access_refusal, compile_requirements
from lodesman.decide.resources.settings import (
    QueueSettings,
    backend_of,
    gate_modes,
    names_backend,
    queue_settings,
    written_jc_lists,
)
from lodesman.wire.nodes import NodePath, QueueId

__all__ = [
    "ANY",
    "LOCAL",
    "MANUAL",
    "TYPES",
    "EffectiveParam",
    "Fault",
    "FilePosition",
    "GroupConfig",
    "Mismatch",
    "Node",
    "NodePath",
    "ParameterType",
    "PlaceLimit",
    "QueueId",
    "QueueSettings",
    "QueueTable",
    "Requirement",
    "ResourceConfig",
    "ResourceTree",
    "TypeTable",
    "access_refusal",
    "all_queues",
    "backend_of",
    "backend_type",
    "compile_requirements",
    "effective_params",
    "fault_of",
    "fold",
    "gate_modes",
    "load_resources",
    "names_backend",
    "place_of",
    "queue_settings",
    "refuse",
    "written_jc_lists",
]
