"""Which VOs and groups the configuration knows, and what is said of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidRequest
from lodesman.decide.resources import load_resources
from lodesman.server.writer.accounts import check_membership, known_vos

RESOURCES = """
[site.A]
VO = ["of_site", "ANY"]
[site.A.vo.of_overlay]
Memory = 1
[site.A.ce.c]
VO = "of_ce"
[site.A.ce.c.queue.q]
VO = ["of_queue", "of_site"]
[vo.of_section]
[group.open]
[group.physics]
vo = "of_group"
[group."Old Physics"]
vo = "of_group"
"""
CONFIG = load_resources([("sites.toml", RESOURCES)])
DIRAC = load_resources([("sites.cfg", "Registry\n{\nGroups\n{\nlhcb_user\n{\nVO = lhcb\n}\n}\n}\n")])
NOTHING = load_resources([])


def refusal(config, vo, *groups):
    with pytest.raises(InvalidRequest) as caught:
        check_membership(config, vo, groups)
    return str(caught.value)


def test_vos_are_known_from_everything_that_names_them():
    places = ("site", "overlay", "ce", "queue", "section", "group")
    assert set(known_vos(CONFIG)) == {f"of_{place}" for place in places}
    assert set(known_vos(DIRAC)) == {"lhcb"}
    assert set(known_vos(NOTHING)) == set()


def test_what_is_known_is_taken_however_it_is_spelled():
    check_membership(CONFIG, "of_group", ["physics", "Old Physics", "open"])
    check_membership(CONFIG, "of_ce", ["open"])
    check_membership(DIRAC, "lhcb", ["lhcb_user"])


def test_the_nearest_are_named_first():
    assert refusal(CONFIG, "of_sit", "open").startswith("The configuration has no VO of_sit. VOs: of_site, ")
    assert refusal(CONFIG, "of_group", "physics", "oben") == (
        "VO of_group has no group oben. Groups: open, physics, Old Physics."
    )


def test_a_group_of_another_vo():
    assert refusal(CONFIG, "of_ce", "physics") == (
        "Group physics belongs to VO of_group, not to of_ce. Groups: open."
    )


def test_a_vo_without_groups_in_the_configuration_has_any():
    config = load_resources([("s.toml", '[vo.other]\n[group.physics]\nvo = "lab"\n')])
    check_membership(config, "other", ["theirs"])
    assert refusal(config, "other", "physics") == "Group physics belongs to VO lab, not to other."
    assert "letters, digits" in refusal(config, "other", "not a name")


@given(st.text(max_size=5), st.text(max_size=5))
def test_without_a_configuration_only_names_are_taken(vo, group):
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@-")
    if vo and group and set(vo) | set(group) <= allowed:
        check_membership(NOTHING, vo, [group])
    else:
        assert "letters, digits" in refusal(NOTHING, vo, group)
