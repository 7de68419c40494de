"""The director's decisions: how many pilots, for which task queue, whose, through which pool, where.

Pure: snapshots in, decisions out; `now` and the random source are arguments. `decide` is one iteration; the
service around it stores the decision and drives submission pools and backends (DESIGN 3.4).
"""

from lodesman.director.adaptive import AdaptiveRules, Target
from lodesman.director.breaker import Breaker, BreakerRules, failed, settle, succeeded
from lodesman.director.clamps import Clamp
from lodesman.director.demand import TaskQueueDemand
from lodesman.director.excess import Excess, ExcessRules
from lodesman.director.floor import Room
from lodesman.director.iteration import Decision, DirectorInput, PoolRefusal, decide
from lodesman.director.observation import Observation
from lodesman.director.options import DirectorOptions, PoolOptions, read_options
from lodesman.director.pilot_type import PilotIdentity
from lodesman.director.placement import AskOutcome, Placement, PlacementResult, Refusal, Refused
from lodesman.director.places import Ask
from lodesman.director.plan import Plan, PlanRow
from lodesman.director.pools import PoolState, PoolTry
from lodesman.director.queues import CandidateQueue, OwnPilots, QueueCaps
from lodesman.director.record import RecordedLoad, Stories, loads_of, plan_of, to_record
from lodesman.director.serving import Serving
from lodesman.director.supply import PilotStanding, PilotView, SetAside, Spare, Supply
from lodesman.director.token_bucket import RateRules, TokenBucket

__all__ = [
    "AdaptiveRules",
    "Ask",
    "AskOutcome",
    "Breaker",
    "BreakerRules",
    "CandidateQueue",
    "Clamp",
    "Decision",
    "DirectorInput",
    "DirectorOptions",
    "Excess",
    "ExcessRules",
    "Observation",
    "OwnPilots",
    "PilotIdentity",
    "PilotStanding",
    "PilotView",
    "Placement",
    "PlacementResult",
    "Plan",
    "PlanRow",
    "PoolOptions",
    "PoolRefusal",
    "PoolState",
    "PoolTry",
    "QueueCaps",
    "RateRules",
    "RecordedLoad",
    "Refusal",
    "Refused",
    "Room",
    "Serving",
    "SetAside",
    "Spare",
    "Stories",
    "Supply",
    "Target",
    "TaskQueueDemand",
    "TokenBucket",
    "decide",
    "failed",
    "loads_of",
    "plan_of",
    "read_options",
    "settle",
    "succeeded",
    "to_record",
]
