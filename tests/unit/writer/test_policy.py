"""The configuration as services use it: worlds of VOs, shares, groups."""

from __future__ import annotations

import pytest

from lodesman.base.errors import Forbidden, InvalidJob
from lodesman.server.writer.memberships import group_of
from lodesman.wire.accounts import Principal


def user(*groups, vo="lab", name="ann"):
    return Principal(kind="user", name=name, vo=vo, groups=groups)


def test_each_vo_has_its_own_world_made_once(policy):
    lab, other = policy.vo_config("lab"), policy.vo_config("other")
    assert lab.sites == {"North", "South"}
    assert other.sites == {"South"}
    assert [offer.queue.queue for offer in other.offers] == ["long"]
    assert policy.vo_config("lab") is lab


def test_an_unknown_vo_has_an_empty_configuration(policy):
    assert policy.vo_config("nobody").offers == ()


def test_shares_and_groups_that_share(policy):
    shares = policy.shares()
    assert shares["physics"].share == 3000
    assert (shares["open"].job_sharing, shares["physics"].job_sharing) == (True, False)
    assert policy.sharing_groups() == {"open"}


@pytest.mark.parametrize(("groups", "wanted", "found"), [
    (("physics", "open"), "", "physics"),
    (("physics", "open"), "open", "open"),
    (("unknown",), "", "unknown"),
])  # fmt: skip
def test_the_group_that_a_submission_counts_for(policy, groups, wanted, found):
    assert group_of(user(*groups), policy, wanted).name == found


def test_groups_that_are_not_one_s_own(policy):
    with pytest.raises(Forbidden, match="no group"):
        group_of(user(), policy, "")
    with pytest.raises(Forbidden) as caught:
        group_of(user("open"), policy, "physics")
    assert "open" in caught.value.hint
    with pytest.raises(InvalidJob, match="VO lab"):
        group_of(user("physics", vo="other"), policy, "physics")
