"""Sites advertise: what is taken, what is refused by name without a trace, what is said of gates, who may ask."""

from __future__ import annotations

import base64
import threading
import time
from contextlib import closing
from itertools import count
from math import inf

import pytest
from msgspec.structs import asdict
from tests.conftest import untraced
from tests.kits.cost import slowness

from lodesman.decide.broker.ad import _WORD, LIFETIME_S, MOST_WORDS, read_site_ad
from lodesman.languages.classad import write_ad
from lodesman.server.reads.sites import GateReader
from lodesman.server.store.journal import Change
from lodesman.server.store.site_ads import KEPT_S, ad_versions, ads_of_the_day, forget_old_ads, live_matches
from lodesman.server.writer.pilots import hash_token
from lodesman.server.writer.site_ads import KnownAds, stored_ad
from lodesman.wire.site_ads import AdNumbers


def seconds_of(act):
    """What it takes of a processor, all threads together: the machine may be busy with other things."""
    found = inf
    with untraced():
        for _ in range(10):
            begun = time.process_time()
            act()
            found = min(found, time.process_time() - begun)
            if found < 0.05:
                break
    return found


def ad(number=1, site="North", **attributes):
    """The ad of a site with room for two."""
    facts = {
        "Name": f'"{site}"', "UpdateSequenceNumber": number, "MaxJobs": 10, "MaxSubmittingJobs": 5, "CurrentJobs": 6,
        "CurrentSubmittingJobs": 1, "CurrentPendingJobs": 1, "PilotStamps": '{"s-1", "s-2"}', **attributes,
    }  # fmt: skip
    return "".join(f"{name} = {value}\n" for name, value in facts.items() if value is not None)


@pytest.fixture
def north(house):
    return house.site("North")


def reader_of(house, db):
    return GateReader(db=db, tree=house.side.policy.config.tree, options=house.side.gates)


def send(house, token, text):
    return house.call("POST", "/v1/sites/ad", {"ad": text}, token=token)


def taken(house, token, text):
    answer = send(house, token, text)
    assert answer.status == 200, answer.body
    return answer.json


def gate(house, site="North", token="ann"):
    return house.get(f"/v1/sites/gate?site={site}", token)


def state(house):
    """All that is stored of ads."""
    db = house.side.db
    return {site: (one, write_ad(stored_ad(db, site).ad)) for site, one in ad_versions(db).items()}, [
        ads_of_the_day(db, site, house.now) for site in ("North", "South")
    ]


def test_an_ad_is_stored_and_its_gate_is_open(house, north):
    assert gate(house)["ad"] is None
    assert gate(house)["shut"] == ""
    said = taken(house, north, ad())
    assert said == {
        "site": "North", "sequence": 1, "received_at": house.now, "good_until": house.now + LIFETIME_S, "shut": "",
    }  # fmt: skip
    found = gate(house)
    assert found["ad"] == {
        "site": "North", "sequence": 1, "incarnation": "", "received_at": house.now, "lifetime_seconds": LIFETIME_S,
        "is_too_old": False, "stamps": 2, "others": None,
        "numbers": {
            "max_jobs": 10, "max_submitting_jobs": 5, "current_jobs": 6, "current_submitting_jobs": 1,
            "current_pending_jobs": 1,
        },
    }  # fmt: skip
    assert found["text"] == ad()
    assert (found["mode"], found["shut"], found["room"], found["matched"], found["pilots"]) == (
        "ledger", "", 2, 0, 0,
    )  # fmt: skip
    assert [row["clause"] for row in found["clauses"]] == [
        "CurMatches < MaxJobs", "JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < MaxSubmittingJobs",
    ]  # fmt: skip
    assert {one["name"]: one["value"] for one in found["values"]}["CurMatches"] == "8"
    assert house.get("/v1/sites/ads")["ads"] == [found["ad"]]


def test_what_was_sent_there_counts_until_an_ad_shows_it_or_it_ends(house, north):
    taken(house, north, ad())
    house.pilot()
    found = gate(house)
    assert (found["room"], found["matched"], found["pilots"]) == (1, 1, 1)
    house.prepare_pilot()
    found = gate(house)
    assert (found["room"], found["matched"], found["pilots"]) == (0, 2, 2)
    assert found["shut"] == "CurMatches < MaxJobs is false: CurMatches = 10, MaxJobs = 10"
    house.now += 1.0
    # One of them is among the seven now.
    assert taken(house, north, ad(2, CurrentJobs=7, PilotStamps='{"stamp1"}'))["shut"]
    found = gate(house)
    assert (found["room"], found["matched"], found["pilots"]) == (0, 1, 2)
    ended = {"pilot": 2, "state": "Aborted", "reason": "gone"}
    assert house.call("POST", "/v1/service/ended", ended, token="service").status == 200
    found = gate(house)
    assert (found["room"], found["matched"], found["pilots"], found["shut"]) == (1, 0, 1, "")


def test_an_ad_without_stamps_shows_pilots_by_its_counts(house, north):
    """An ad as the seed has it. A pilot that runs counts once where the counts rose with it, else twice, as is said."""
    plain = {"PilotStamps": None, "CurrentPendingJobs": None, "MaxSubmittingJobs": 3}
    taken(house, north, ad(**plain))
    house.now += 300.0
    for _ in range(2):
        house.pilot()
    house.now += 1.0
    assert taken(house, north, ad(2, **plain))["shut"].startswith("JobsMatchedSinceLastAdvertisement + ")
    found = gate(house)
    assert (found["matched"], found["room"], found["ad"]["others"]) == (2, 0, 7)
    words = "its ad lists no PilotStamps, so 2 of 2 pilots count twice, until its counts have risen"
    assert found["notice"].startswith(words)
    assert words in found["shut"]
    assert taken(house, north, ad(3, **{**plain, "CurrentJobs": 8}))["shut"] == ""
    found = gate(house)
    assert (found["matched"], found["notice"], found["ad"]["others"]) == (0, "", 7)
    assert KnownAds().look(house.side.db)["North"].others == 7


def test_the_reason_names_stamps_that_are_missing(house, backend, north):
    director = house.director(backend)
    taken(house, north, ad(PilotStamps=None, MaxSubmittingJobs=3))
    house.now = backend.now = house.now + 1.0
    for _ in range(2):
        house.pilot()
    house.now = backend.now = house.now + 1.0
    taken(house, north, ad(2, PilotStamps=None, MaxSubmittingJobs=3))
    job = house.submitted(*[{"Site": "North", "CPUTime": 500}] * 5)
    director.tick(house.now)
    house.side.director = director
    house.side.keeper.refresh(house.now, rest=0.0)
    found = house.get(f"/v1/jobs/{job}/why?queue=North/ce.north/short")
    assert "its ad lists no PilotStamps, so 2 of 2 pilots count twice" in found["queue"]["gate"]


def test_pilots_of_other_sites_do_not_count(house, north):
    taken(house, north, ad())
    house.pilot("South")
    assert (gate(house)["matched"], gate(house)["pilots"]) == (0, 0)
    assert list(live_matches(house.side.db)) == ["South"]
    assert gate(house, "South")["pilots"] == 1


def test_a_forwarded_pilot_counts_where_it_was_sent(house, north):
    taken(house, north, ad())
    request = {"vo": "lab", "site": "North", "ce": "ce.north", "queue": "short", "cores": 4}
    row = {
        "stamp": "forwarded", "vo": "lab", "site": "North", "ce": "ce.north", "queue": "short", "request": request,
        "join_hash": base64.b64encode(hash_token("join-forwarded")).decode(), "forwards": True,
    }  # fmt: skip
    assert house.call("POST", "/v1/service/pilots", [row], token="service").status == 200
    place = {"site": "South", "ce": "ce.south", "queue": "long"}
    body = {"join_token": "join-forwarded", "nonce": "n", "node": {"cores": 4}, "place": place}
    assert house.call("POST", "/v1/pilots/join", body).status == 200
    (pilot,) = house.get("/v1/pilots")["pilots"]
    assert pilot["site"] == "South"
    assert (gate(house)["pilots"], gate(house, "South")["pilots"]) == (1, 0)


def test_a_site_that_is_cut_off_is_shut_after_the_lifetime_and_opens_with_the_next_ad(house, north):
    """Nothing is lost meanwhile: jobs wait, and those that run go on."""
    taken(house, north, ad())
    running, waiting = house.submitted(), house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.now += LIFETIME_S
    assert gate(house)["shut"] == ""  # not older than that
    house.now += 1.0
    assert gate(house)["shut"] == "its ad is 901 s old, older than 900 s"
    assert (gate(house)["room"], gate(house)["ad"]["is_too_old"]) == (0, True)
    assert house.get("/v1/sites/ads")["ads"][0]["is_too_old"]
    assert house.report(pilot, job)["accepted"]
    assert [house.get(f"/v1/jobs/{one}")["state"] for one in (running, waiting)] == ["Done", "Waiting"]
    # A host whose counter began again may do so after the end of its last ad.
    assert taken(house, north, ad(1, CurrentJobs=0, PilotStamps='{"stamp1"}'))["shut"] == ""
    assert gate(house)["room"] == 4
    assert len(gate(house)["day"]) == 2


def test_an_ad_says_how_long_it_counts(house, north):
    assert taken(house, north, ad(ClassAdLifetime=60))["good_until"] == house.now + 60
    house.now += 61
    assert gate(house)["shut"] == "its ad is 61 s old, older than 60 s"


def test_an_older_number_is_refused_and_another_incarnation_is_not(house, north):
    taken(house, north, ad(7))
    before = state(house)
    for number in (7, 6, 0):
        answer = send(house, north, ad(number, CurrentJobs=0))
        assert (answer.status, answer.code) == (409, "conflict")
        assert answer.json["error"]["message"] == (
            f"The ad of North has the number {number}, and one with the number 7 has come."
        )
        assert answer.json["error"]["data"] == {"sequence": number, "stored": 7}
    assert state(house) == before
    taken(house, north, ad(1, Incarnation='"second"'))
    taken(house, north, ad(2, Incarnation='"second"'))
    assert send(house, north, ad(2, Incarnation='"second"')).status == 409
    assert [one["incarnation"] for one in gate(house)["day"]] == ["second", "second", ""]


def test_a_number_of_a_wrong_clock_is_named_and_ends_with_its_ad(house, north):
    runaway = (1 << 63) - 1
    taken(house, north, ad(runaway))
    house.now += 300.0
    answer = send(house, north, ad(int(house.now * 1_000)))
    assert (answer.status, answer.code) == (409, "conflict")
    error = answer.json["error"]
    assert f"the number {runaway} has come, by a clock that was 9,223," in error["message"]
    assert error["hint"].startswith(
        "Set the clock of the site. From 1970-01-12 14:01:40 UTC on any number is taken"
    )
    house.now += LIFETIME_S - 300.0 + 1.0
    assert taken(house, north, ad(int(house.now * 1_000)))["shut"] == ""


NESTED = "A = " + "[a=" * 1_000 + "1" + "]" * 1_000 + "\n"
LISTS = "A = " + "{" * 1_000 + "}" * 1_000 + "\n"
BAD = {
    "larger than 64 KiB": (ad() + " " * 65_536, 400, "64 KiB"),
    "nested 1,000 deep": (ad() + NESTED, 400, "line 9, column"),
    "lists 1,000 deep": (ad() + LISTS, 400, "line 9, column"),
    "a cycle": (ad(A="B + 1", B="A + 1"), 400, "A -> B -> A"),
    "a cycle in Requirements": (ad(Requirements="CurrentJobs < X", X="Y", Y="X"), 400, "X -> Y -> X"),
    "of another site": (ad(site="South"), 403, "South"),
    "without a name": (ad(Name=None), 400, "Name"),
    "without a number": (ad(UpdateSequenceNumber=None), 400, "UpdateSequenceNumber"),
    "a text as number": (ad('"7"'), 400, "line 2, column 24: UpdateSequenceNumber"),
    "a negative number": (ad(-7), 400, "UpdateSequenceNumber"),
    "a fraction as number": (ad(7.5), 400, "UpdateSequenceNumber"),
    "a number of 65 bits": (ad(1 << 64), 400, "line 2, column 24"),
    "a name that is no text": (ad(Name="North"), 400, "line 1, column 8: Name"),
    "a lifetime of years": (ad(ClassAdLifetime="1e308"), 400, "at most 86,400 (a day)"),
    "a lifetime that is no number": (ad(ClassAdLifetime='"long"'), 400, "ClassAdLifetime"),
    "stamps that are no list": (ad(PilotStamps="7"), 400, "PilotStamps"),
    "stamps that are no texts": (ad(PilotStamps='{"s-1", 7}'), 400, "PilotStamps"),
    "no expression": (ad(Requirements="CurMatches <"), 400, "line 9, column"),
    "a name twice": (ad() + "maxjobs = 7\n", 400, "line 9, column 1"),
    "too many words": (ad() + "A = {" + "1," * 3_000 + "1}\n", 400, "line 9, column"),
    "nothing": ("", 400, "Name"),
    "a character that texts do not have": (ad(X='"a\0b"'), 400, "line 9, column"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_within_50_ms_and_changes_nothing(house, north, name):
    text, status, words = BAD[name]
    taken(house, north, ad(0))
    before = state(house)
    answer = send(house, north, text)
    assert answer.status == status, answer.body
    assert words in answer.json["error"]["message"]
    assert seconds_of(lambda: send(house, north, text)) < 0.05 * slowness()
    assert state(house) == before


def largest():
    """As many words and marks as an ad may have, in 64 KiB."""
    lines = (f"a{n} = b{n + 1} < {n} + c * {{1, 2}}[0]\n" for n in count())
    text = ad()
    while len(_WORD.findall(longer := text + next(lines))) <= MOST_WORDS:
        text = longer
    return text + " " * ((1 << 16) - 10 - len(text))


@pytest.mark.slow
def test_the_largest_ad_is_taken_within_50_ms_and_read_again(house, north):
    text, numbers = largest(), count(1)

    def once():
        number = f"UpdateSequenceNumber = {next(numbers)}\n"
        taken(house, north, text.replace("UpdateSequenceNumber = 1\n", number))

    assert seconds_of(once) < 0.05 * slowness()
    assert gate(house)["room"] == 2
    assert len(stored_ad(house.side.db, "North").ad) > 200


@pytest.mark.parametrize("body", [b"{", b'{"ad": 7}', b'{"ad": "x", "more": 1}', b"{}", b'{"ad": "\\ud800"}'])
def test_bodies_that_are_no_ads(house, north, body):
    assert house.call("POST", "/v1/sites/ad", body, token=north).status == 400
    assert state(house) == ({}, [[], []])


def test_a_restart_forgets_neither_ads_nor_matches(house, north, maker):
    taken(house, north, ad())
    house.pilot()
    known = KnownAds()
    first = known.look(house.side.db)["North"]
    assert known.look(house.side.db)["North"] is first  # read once
    with closing(house.side.db.database.reader()) as db:
        again = KnownAds().look(db)["North"]
        assert (write_ad(again.ad), again.sequence, again.received_at, again.stamps) == (
            write_ad(first.ad), first.sequence, first.received_at, first.stamps,
        )  # fmt: skip
        assert reader_of(house, db).gate_of("North", again, house.now).matched == 1
    taken(house, north, ad(2))
    assert known.look(house.side.db)["North"].sequence == 2


def test_the_last_day_is_kept(house, north):
    for number in range(1, 4):
        taken(house, north, ad(number, CurrentJobs=number, MaxJobs='"ten"', CurrentSubmittingJobs="2 + 1"))
        house.now += KEPT_S / 2 - 1.0
    rows = gate(house)["day"]
    assert [(one["sequence"], one["numbers"]["current_jobs"]) for one in rows] == [(3, 3), (2, 2)]
    assert rows[0]["numbers"] == {"current_jobs": 3, "current_submitting_jobs": 3, "max_submitting_jobs": 5,
                                  "current_pending_jobs": 1}  # fmt: skip
    assert asdict(AdNumbers())["max_jobs"] is None
    count = "SELECT count(*) FROM site_ad_entry"
    assert house.side.db.only(count) == (3,)
    house.do(Change(forget_old_ads))
    assert house.side.db.only(count) == (2,)
    assert house.call("POST", "/v1/service/forget-idle", {}, token="service").status == 200
    house.now += 10 * KEPT_S
    house.do(Change(forget_old_ads))
    assert house.side.db.only(count) == (0,)
    assert gate(house)["ad"]["sequence"] == 3  # the newest one stays


def test_gates_are_for_those_who_may_use_the_site(house, north):
    taken(house, north, ad())
    house.user("olaf", "guests", vo="other")
    assert house.call("GET", "/v1/sites/gate?site=North", token="olaf").status == 404
    assert house.get("/v1/sites/ads", "olaf")["ads"] == []
    assert len(house.get("/v1/sites/ads", "admin")["ads"]) == 1
    assert gate(house, token=north)["ad"]["sequence"] == 1
    answer = house.call("GET", "/v1/sites/gate?site=South", token=north)
    assert (answer.status, answer.json["error"]["message"]) == (404, "There is no site South.")
    assert house.call("GET", "/v1/sites/gate", token="ann").status == 404


def test_a_site_that_is_not_configured_any_more_is_refused(house, north):
    taken(house, house.site("South"), ad(site="South"))
    south = house.site("Gone")
    answer = send(house, south, ad(site="Gone"))
    assert (answer.status, answer.json["error"]["message"]) == (404, "There is no Site Gone.")


# --- tokens of sites ------------------------------------------------------------------------------------------------------


def issue(house, **body):
    return house.call("POST", "/v1/sites/token", {"site": "North", **body}, token="admin")


def site_tokens(house, token="admin"):
    return [one for one in house.get("/v1/tokens", token)["tokens"] if one["kind"] == "site"]


def test_administrators_make_list_and_revoke_tokens_of_sites(house):
    made = issue(house, note="ce7").json["token"]
    assert taken(house, made, ad())["sequence"] == 1
    (row,) = site_tokens(house)
    assert (row["account"], row["scopes"], row["note"], row["expires_at"], row["made_by"]) == (
        "North", [], "ce7", None, "admin",
    )  # fmt: skip
    assert site_tokens(house, "ann") == []
    (entry, *_) = house.get("/v1/audit", "admin")["entries"]
    assert (entry["action"], entry["subject"], entry["by"]) == ("token-issued", "North", "admin")
    revoked = house.call("DELETE", f"/v1/tokens/{row['hash'][:12]}", token="admin")
    assert (revoked.status, revoked.json) == (200, {"revoked": 1, "kept": 0})
    assert send(house, made, ad(2)).status == 401


def test_tokens_of_sites_end(house):
    made = issue(house, seconds=10.0).json["token"]
    taken(house, made, ad())
    house.now += 11.0
    assert send(house, made, ad(2)).status == 401
    house.now += 8 * 86_400.0
    assert house.call("POST", "/v1/service/forget-idle", {}, token="service").status == 200
    assert site_tokens(house) == []


def test_a_site_and_a_user_of_one_name_are_two(house):
    """A user North gets no right at the site, and the site none of the user."""
    house.user("North", admin=True)
    made = issue(house).json["token"]
    assert house.call("GET", "/v1/users", token=made).status == 403
    assert send(house, "North", ad()).status == 403
    assert len([one for one in house.get("/v1/tokens", "admin")["tokens"] if one["account"] == "North"]) == 2
    house.call("POST", "/v1/users/disable", {"name": "North"}, token="admin")
    assert taken(house, made, ad())["sequence"] == 1


def test_what_an_administrator_made_for_a_site_stays_when_the_own_token_is_revoked(house):
    spare = house.call("POST", "/v1/tokens", {"account": "admin", "scopes": ["admin"]}, token="admin").json[
        "token"
    ]
    made = house.call("POST", "/v1/sites/token", {"site": "North"}, token=spare).json["token"]
    (row,) = site_tokens(house)
    answer = house.call("DELETE", f"/v1/tokens/{row['made_with']}", token="admin")
    assert answer.json == {"revoked": 1, "kept": 1}
    assert taken(house, made, ad())["sequence"] == 1


def test_the_token_of_a_user_is_refused_with_what_to_do(house):
    answer = send(house, "admin", ad())
    assert (answer.status, answer.json["error"]["hint"]) == (
        403,
        "Administrators make one: lode site token SITE",
    )


def test_the_list_of_sites_says_how_old_their_ads_are(house, north):
    taken(house, north, ad())
    house.now += 100.0
    north_row, south = house.get("/v1/sites", "ann")["sites"]
    assert (north_row["ad_at"], north_row["ad_is_too_old"]) == (house.now - 100.0, False)
    assert "ad_at" not in south
    house.now += LIFETIME_S
    assert house.get("/v1/sites", "ann")["sites"][0]["ad_is_too_old"]


def test_a_stored_ad_that_cannot_be_read_any_more_shuts_the_gate(house, north):
    """Such as one of a release that read more."""
    taken(house, north, ad(5))
    house._writer.change("UPDATE site_ad SET text = ?", ("Name = (",))
    known = KnownAds().look(house.side.db)["North"]
    assert (known.sequence, len(known.ad)) == (5, 0)
    assert gate(house)["shut"] == "its ad has neither Requirements nor limits"
    assert gate(house)["ad"]["sequence"] == 5
    assert send(house, north, ad(4)).status == 409
    assert taken(house, north, ad(6))["shut"] == ""
    assert gate(house)["room"] == 2


def test_ads_have_any_attributes_and_either_form(house, north):
    text = """[ Name = "North"; UpdateSequenceNumber = 3; GramUrl = "gsiftp://ce7/ü"; MaxJobs = 2; CurrentJobs = 1;
        CurrentSubmittingJobs = 0; MaxSubmittingJobs = 9; Inner = [ a = { 1, 2.5, undefined } ] ]"""
    taken(house, north, text)
    assert gate(house)["text"] == text
    assert gate(house)["room"] == 1


def test_an_ad_that_is_too_dear_is_refused_beside_the_event_loop(house, north, monkeypatch):
    """30 kB with a few regular expressions held the whole server for minutes."""
    before, threads = state(house), []

    def noting(*words, **more):
        threads.append(threading.current_thread())
        return read_site_ad(*words, **more)

    monkeypatch.setattr("lodesman.server.http.sites.read_site_ad", noting)
    pattern = 'regexp("a.{0,60}z0", T)'
    text = ad(T='"' + "ab" * 15_000 + '"', Requirements=" || ".join([pattern] * 8))
    answer = send(house, north, text)
    assert (answer.status, state(house)) == (400, before)
    assert "The ad is too dear: its values, up to Requirements" in answer.json["error"]["message"]
    taken(house, north, ad(T='"ab"', Requirements=" || ".join([pattern] * 8)))
    assert threading.main_thread() not in threads
    assert len(threads) == 2
