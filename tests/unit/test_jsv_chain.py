"""Where scripts come from, in which order they verify, and what may be changed without them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import Forbidden, InvalidConfig
from lodesman.server.jsv.chain import (
    ALLOWED_MODIFICATIONS,
    JsvUrl,
    check_modification,
    client_order,
    parse_url,
)
from lodesman.server.jsv.parameters import JsvContext

CLIENT, SERVER = JsvContext.CLIENT, JsvContext.SERVER


def test_the_order_of_all_sources():
    # qsub -jsv A -jsv B with W in ./.lode_request, H in ~/.lode_request, C in the cluster's; S is the server's.
    order = client_order(["A", "B"], here=["W"], home=["H"], cluster=["C"])
    assert "".join([*order, "S"]) == "BAWHCS"
    assert client_order() == []
    assert client_order(home=["H1", "H2"]) == ["H2", "H1"]


@pytest.mark.parametrize(
    ("text", "context", "found"),
    [
        ("none", SERVER, None),
        ("NONE", CLIENT, None),
        ("", CLIENT, None),
        ("/a/b", SERVER, JsvUrl(path="/a/b")),
        ("script:/a/b", CLIENT, JsvUrl(path="/a/b")),
        (" script:/a b ", CLIENT, JsvUrl(path="/a b")),
        ("jsv@/a/b", SERVER, JsvUrl(path="/a/b", user="jsv")),
        ("script:jsv-1@/a/b", SERVER, JsvUrl(path="/a/b", user="jsv-1")),
        ("/a/b:c@d", CLIENT, JsvUrl(path="/a/b:c@d")),
    ],
)
def test_urls(text, context, found):
    assert parse_url(text, context) == found


@pytest.mark.parametrize(
    ("text", "context", "why"),
    [
        ("jsv@/a/b", CLIENT, "only the JSV of a server may name an account"),
        ("script:jsv@/a", CLIENT, "only the JSV of a server may name an account"),
        ("http:/a/b", SERVER, "the type 'http' is unknown"),
        ("a/b", SERVER, "the path is not absolute"),
        ("script:", SERVER, "the path is not absolute"),
        ("jsv@", SERVER, "the path is not absolute"),
        ("j sv@/a", SERVER, "'j sv' is no name of an account"),
        ("@/a", SERVER, "'' is no name of an account"),
    ],
)
def test_urls_that_cannot_be_used(text, context, why):
    with pytest.raises(InvalidConfig, match="cannot be used") as refused:
        parse_url(text, context)
    assert refused.value.message == f'The JSV "{text}" cannot be used: {why}.'
    assert refused.value.data == {"jsv": text}


def test_a_client_may_give_a_path_from_its_folder():
    assert parse_url("bin/jsv", CLIENT, folder="/home/ann/") == JsvUrl(path="/home/ann/bin/jsv")
    assert parse_url("script:/x", CLIENT, folder="/home/ann") == JsvUrl(path="/x")


@pytest.mark.parametrize(
    ("names", "allowed", "message"),
    [
        (["h", "N", "w"], ALLOWED_MODIFICATIONS, None),
        (["t"], ALLOWED_MODIFICATIONS, None),
        ([], "none", None),
        (["l_hard"], ALLOWED_MODIFICATIONS, "rejected due to jsv_allowed_mod configuration which does not allow: l_hard"),
        (["N", "q_hard", "P"], ALLOWED_MODIFICATIONS,
         "rejected due to jsv_allowed_mod configuration which does not allow: q_hard,P"),
        (["t"], "ac, N", "rejected due to jsv_allowed_mod configuration which does not allow: t"),
        (["w", "N"], "ac, N", None),
        (["N"], "none", "No job modification allowed due to jsv_allowed_mod configuration"),
        (["N"], " NONE ", "No job modification allowed due to jsv_allowed_mod configuration"),
    ],
)  # fmt: skip
def test_changes_past_the_script(names, allowed, message):
    if message is None:
        check_modification(names, allowed)
        return
    with pytest.raises(Forbidden) as refused:
        check_modification(names, allowed)
    assert refused.value.message == message


@given(st.text(max_size=30), st.sampled_from([CLIENT, SERVER]))
def test_any_text_is_a_url_or_refused(text, context):
    try:
        found = parse_url(text, context)
    except InvalidConfig:
        return
    assert found is None or found.path.startswith("/")
    assert context is SERVER or found is None or not found.user
