"""Names of sites, CEs and submission pools that are not configured, and the suggestion to the user."""

from __future__ import annotations

import pytest

from lodesman.base.errors import InvalidJob
from lodesman.decide.matching.offers import PoolScope
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.decide.submission import JobDraft, optimize
from lodesman.languages.jobs import JobSpec

TEXT = """
[site."S/ one, é"]
[site."S/ one, é".ce."ç,1".queue.q]
CPUTime = 1000
[site.LCG.ce.cn.queue.q]
CPUTime = 1000
"""
WORLD = Policy(
    load_resources([("s.toml", TEXT)]),
    submission_pools=dict.fromkeys(("Local", "Grid"), PoolScope()),
).vo_config("lab")
OPTION = "--hold-if-impossible"


def draft(*, hold=False, **spec):
    spec = JobSpec(executable="x", norm_cpu_seconds=10, **spec)
    return JobDraft(spec=spec, owner="ann", group="g", vo="lab", hold=hold)


def refusal(**spec):
    with pytest.raises(InvalidJob) as caught:
        optimize(draft(**spec), WORLD)
    return caught.value


@pytest.mark.parametrize("field", ["sites", "banned_sites", "grid_ces"])
def test_a_place_may_have_any_name(field):
    name = "ç,1" if field == "grid_ces" else "S/ one, é"
    done = optimize(draft(**{field: (name,)}), WORLD)
    assert (done.never, getattr(done.key, field)) == ("", (name,))


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize(("field", "attribute"), [("sites", "Site"), ("grid_ces", "GridCE")])
@pytest.mark.parametrize("name", ["ñ", "LCG,cn"])
def test_an_odd_name_is_one_only_where_a_place_has_it(field, attribute, name, hold):
    found = refusal(**{field: (name,)}, hold=hold)
    assert (found.data["attribute"], repr(name) in found.message) == (attribute, True)
    assert OPTION not in found.hint or not hold


def test_a_plain_ce_may_come_later():
    assert "GridCE excludes 2 of 2" in optimize(draft(grid_ces=("later",)), WORLD).never


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"sites": ("nowhere", "LCG")}, "lode site ls lists the sites."),
        ({"sites": ("LGC",)}, "Did you mean LCG?"),
        ({"sites": ("lcg",)}, "Did you mean LCG?"),
        ({"submission_pools": ("Gird",)}, "Did you mean Grid?"),
        ({"submission_pools": ("x",)}, "There are Grid, Local."),
    ],
)
def test_what_to_do_about_an_unknown_name(spec, told):
    found = refusal(**spec)
    assert found.hint.startswith(f"{told} Correct the name, leave it out, or submit with {OPTION}")
    assert optimize(draft(**spec, hold=True), WORLD).key is not None  # the way out is one


def test_a_useless_option_is_not_suggested():
    found = refusal(sites=("ñ",))
    assert OPTION not in found.hint
    assert found.hint.endswith("Correct the name, or leave it out.")
