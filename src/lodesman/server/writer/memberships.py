"""For whom a job may be: its owner, its project (JobGroup) and its group."""

from __future__ import annotations

from typing import Final

from lodesman.base.errors import Forbidden, InvalidJob
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import GroupConfig
from lodesman.languages import jobs
from lodesman.languages.jobs.record import shown
from lodesman.wire.accounts import Principal

_FEW_PROJECTS: Final = 10


def check_owner(description: jobs.Description, who: Principal) -> None:
    """Raises InvalidJob for a description in another's name."""
    for attribute, value, own in (("Owner", description.owner, who.name), ("VO", description.vo, who.vo)):
        if value and value != own:
            raise InvalidJob(
                f"{attribute}: {shown(value)} is not yours; by your token it is {own}.",
                hint="Leave it out, or submit with the token of that owner.",
                attribute=attribute,
            )


def check_project(project: str, who: Principal, policy: Policy) -> None:
    """Raises InvalidJob if a user's job may not have this project ("": none)."""
    vocabulary = policy.vocabulary
    problem = vocabulary.project_problem(project, who.name, who.groups)
    if not problem:
        return
    own = vocabulary.projects_of(who.name, who.groups)
    names = ", ".join(own[:_FEW_PROJECTS]) + (", ..." if len(own) > _FEW_PROJECTS else "")
    hint = (
        f"Yours: {names}. Write JobGroup = {own[0]}."
        if own
        else "There is none for you; ask an administrator."
    )
    raise InvalidJob(f"JobGroup: {problem}.", hint=hint, attribute="JobGroup")


def group_of(who: Principal, policy: Policy, requested: str) -> GroupConfig:
    """The group that a submission counts for. Raises Forbidden, InvalidJob."""
    if not who.groups:
        raise Forbidden(f"User {who.name} is in no group.")
    name = requested or who.groups[0]
    if name not in who.groups:
        hint = f"Your groups: {', '.join(who.groups)}."
        if name in policy.vocabulary.projects:
            hint = f"It is a project, which a job names by JobGroup: --set JobGroup={name}. {hint}"
        raise Forbidden(f"You are not in group {name}.", hint=hint)
    group = policy.config.groups.get(name, GroupConfig(name=name, vo=who.vo))
    if group.vo and group.vo != who.vo:
        raise InvalidJob(f"Group {name} belongs to VO {group.vo}, you to {who.vo}.", attribute="OwnerGroup")
    return group
