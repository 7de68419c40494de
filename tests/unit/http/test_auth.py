"""Tokens in headers, and who may do what: pure decisions on principals."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import Forbidden, Unauthorized
from lodesman.server.http.auth import (
    authenticate,
    authorise,
    may_touch,
)
from lodesman.server.writer.accounts import JOINING
from lodesman.wire.accounts import SCOPES, USER_SCOPES, Principal

ANN = Principal(kind="user", name="ann", vo="lab", groups=("physics", "open"), scopes=frozenset(USER_SCOPES))
ADMIN = Principal(kind="user", name="root", vo="lab", admin=True, scopes=frozenset(SCOPES))
PILOT = Principal(kind="pilot", pilot_id=7)
SERVICE = Principal(kind="service")
TOKENS = {b"ann-token": ANN, b"root-token": ADMIN, b"pilot-token": PILOT}


def ask(*headers, now=0.0, extra=None):
    known = {hashlib.sha256(token).digest(): who for token, who in {**TOKENS, **(extra or {})}.items()}
    return authenticate({"headers": list(headers)}, known.get, now)


def test_a_token_names_its_owner():
    assert ask((b"authorization", b"Bearer ann-token")) is ANN
    assert ask((b"x", b"y"), (b"authorization", b"bearer   pilot-token  ")) is PILOT


@given(st.binary(max_size=40))
def test_any_other_value_names_no_user(value):
    for words in (value, b"Bearer " + value):
        if words[:7].lower() == b"bearer " and words[7:].strip() in TOKENS:
            continue
        with pytest.raises(Unauthorized) as caught:
            ask((b"authorization", words))
        assert caught.value.hint


def test_the_first_authorization_header_counts():
    both = [(b"authorization", b"Bearer wrong"), (b"authorization", b"Bearer ann-token")]
    with pytest.raises(Unauthorized):
        ask(*both)


@pytest.mark.parametrize(("now", "good"), [(99.0, True), (100.0, True), (100.1, False)])
def test_a_token_ends_with_its_time(now, good):
    short = Principal(kind="user", name="x", expires_at=100.0)
    if good:
        assert ask((b"authorization", b"Bearer short"), now=now, extra={b"short": short}) is short
    else:
        with pytest.raises(Unauthorized, match="expired"):
            ask((b"authorization", b"Bearer short"), now=now, extra={b"short": short})


def test_what_each_kind_may_ask():
    joining = Principal(kind=JOINING, pilot_id=8)
    allowed = {
        "any": [ANN, ADMIN, PILOT, SERVICE],
        "user": [ANN, ADMIN, SERVICE],
        "pilot": [PILOT],
        "service": [SERVICE],
        "admin": [ADMIN, SERVICE],
        "jobs:read": [ANN, ADMIN, SERVICE],
        "pilot or pilots:read": [ANN, ADMIN, PILOT, SERVICE, joining],
    }
    for who, admitted in allowed.items():
        for one in (ANN, ADMIN, PILOT, SERVICE):
            if one in admitted:
                authorise(one, who)
            else:
                with pytest.raises(Forbidden):
                    authorise(one, who)
    authorise(joining, "pilot or pilots:read")
    without = Principal(kind="user", name="x", scopes=frozenset({"jobs:read"}))
    with pytest.raises(Forbidden, match="lacks the scope pilots:read"):
        authorise(without, "pilots:read")


def test_admin_rights_need_both_the_account_and_the_token():
    for one in (
        Principal(kind="user", name="x", admin=True, scopes=frozenset(USER_SCOPES)),
        Principal(kind="user", name="x", admin=False, scopes=frozenset(SCOPES)),
    ):
        with pytest.raises(Forbidden):
            authorise(one, "admin")
        assert not may_touch(one, frozenset())("ann", "physics", "lab")


@given(
    owner=st.sampled_from(["ann", "bob"]), group=st.sampled_from(["physics", "open", "bio"]),
    vo=st.sampled_from(["lab", "other"]), sharing=st.frozensets(st.sampled_from(["physics", "open", "bio"])),
)  # fmt: skip
def test_a_job_is_one_s_own_or_of_a_group_that_shares_in_the_same_vo(owner, group, vo, sharing):
    shared = group in sharing and group in ANN.groups and vo == "lab"
    assert may_touch(ANN, sharing)(owner, group, vo) == (owner == "ann" or shared)
    assert may_touch(ADMIN, sharing)(owner, group, vo)
    assert may_touch(SERVICE, sharing)(owner, group, vo)
    assert not may_touch(PILOT, sharing)(owner, group, vo)


def test_a_pilot_owns_nothing_though_it_has_no_name():
    assert not may_touch(PILOT, frozenset({""}))("", "", "")
