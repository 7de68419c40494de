"""Batch systems as they are configured: with a section of their own, and by the names that queues give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources.backends import MANUAL, spelled_backend
from lodesman.server.config import load_config

SITES = """
[site.A]
VO = ["lab"]
[site.A.ce.c.queue.q]
Backend = "slurm@login.example.org"
[site.A.ce."ce.example.org"]
CEType = "AREX"
[site.A.ce."ce.example.org".queue.q]
[site.A.ce.h]
CEType = "HTCondorCE"
[site.A.ce.h.queue.q]
[site.A.ce.g.queue.q]
Backend = "cluster"
[site.A.ce.l.queue.q]
[site.A.ce.m.queue.q]
Backend = "manual"
[site.A.ce.m.queue.other]
Backend = "By-Hand"
[site.A.ce.n.queue.q]
Backend = "typo"
[site.A.ce.o.queue.q]
Backend = "slurm@login:ssh"
[site.A.ce.p.queue.q]
Backend = "arc"
"""


@pytest.fixture
def load(tmp_path):
    def load(text, sites=""):
        (tmp_path / "sites.toml").write_text(SITES + sites)
        path = tmp_path / "lode.toml"
        path.write_text(f'{text}\n[resources]\nfiles = ["sites.toml"]\n')
        return load_config(path)

    return load


def test_backends_that_queues_name_need_no_section(load):
    found = load("").backends
    assert {name: (one.type, one.host, one.url, one.schedd) for name, one in found.items()} == {
        "slurm@login.example.org": ("slurm", "login.example.org", "", ""),
        "arc@ce.example.org": ("arc", "", "https://ce.example.org:443/arex", ""),
        "htcondor@h": ("htcondor", "", "", "h"),
    }
    assert load("").backends["htcondor@h"].collector == "h:9619"
    assert load("").backend_names == {"local", *found}


def test_pilots_that_people_start_have_two_names():
    assert [spelled_backend(one) for one in ("manual", "by-hand", " By-Hand")] == [MANUAL] * 3


def test_backends_that_only_one_vo_sees_are_there_too(load, tmp_path):
    path = load("") and tmp_path / "lode.toml"
    more = '[site.A.vo.lab]\nCEType = "Slurm"\n[site.A.ce.g.queue.q.vo.lab]\nBackend = "sge@far"\n'
    (tmp_path / "sites.toml").write_text(SITES + more)
    assert {"slurm", "gridengine@far"} < load_config(path).backends.keys()


def test_a_section_says_what_its_name_does_not(load):
    found = load("""
[backend.Cluster]
type = "SGE"
host = "ann@login:2222"
poll_seconds = 5
submit_options = "-P physics"
[backend.Cluster.environment]
SGE_ROOT = "/opt/sge"
[backend."slurm@login.example.org"]
account = ""
submit_options = "--qos=pilots"
""").backends
    one = found["cluster"]
    assert (one.type, one.host, one.poll_seconds, one.submit_options) == (
        "gridengine", "ann@login:2222", 5.0, "-P physics",
    )  # fmt: skip
    assert one.environment == {"SGE_ROOT": "/opt/sge"}
    other = found["slurm@login.example.org"]
    assert (other.type, other.host, other.submit_options) == ("slurm", "login.example.org", "--qos=pilots")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[backend.cluster]", "the type of backend cluster is slurm, gridengine, arc or htcondor"),
        (
            "[backend.cluster]\ntype = 'pbs'",
            "the type of backend cluster is slurm, gridengine, arc or htcondor",
        ),
        ("[backend.local]", "local needs no section; its options stand in [local]"),
        ("[backend.slurm]\npoll_secs = 5", "poll_secs is not an option"),
        ("[backend.slurm]\npoll_seconds = 0", "poll_seconds"),
        ('[backend.slurm]\nsubmit_options = "\'"', "a quotation mark in submit_options is not closed"),
        ("[backend.slurm]\nhost = 'ann@h:ssh'", "the port of ann@h:ssh is no number from 1 to 65535"),
        ("[backend.slurm]\nhost = 'h:99999'", "the port of h:99999"),
        (f"[backend.slurm]\nhost = 'h:{'9' * 5_000}'", "the port of h:99999"),
        ("[backend.slurm]\nhost = 'h'\naccount = 'a'", "commands by SSH run as the user in `host`"),
        ("[backend.arc]\nurl = 'http://ce/arex'", "the address of an ARC CE begins with https://"),
        ("[backend.arc]", "the address of an ARC CE begins with https://"),
        ("[backend.slurm]\nschedd = 'x'", "schedd is an option of htcondor, not of slurm"),
        ("[backend.slurm]\nshared = false", "shared is an option of gridengine, not of slurm"),
        (
            "[backend.x]\ntype = 'ARC'\nurl = 'https://x/arex'\nhost = 'y'",
            "host is an option of batch systems with commands, not of arc",
        ),
        ("[backend]\nslurm = 5", "a table [backend.slurm] is expected"),
    ],
)
def test_what_is_wrong_in_a_section_is_named(load, text, words):
    with pytest.raises(InvalidConfig) as caught:
        load(text)
    assert words in str(caught.value.data["faults"])
    assert "lode.toml" in str(caught.value.data["faults"])


def test_what_renews_a_credential_needs_one(load):
    found = load("""
[backend.ce]
type = "htcondor"
token_file = "/run/token"
renew = ["/usr/bin/renew", "lab"]
required_time_left = 1200
""").backends["ce"]
    assert (found.renew, found.required_time_left) == (("/usr/bin/renew", "lab"), 1200.0)
    for lines, words in (
        ('type = "arc"\nurl = "https://ce"\nrenew = ["renew"]', "there is no certificate and no token_file"),
        ('type = "slurm"\nrequired_time_left = 5', "there is no certificate and no token_file"),
        ('type = "slurm"\ntoken_file = "/t"', "token_file is an option of"),
        (
            'type = "htcondor"\nhost = "h"\ntoken_file = "/t"',
            "by SSH find certificates and tokens over there",
        ),
    ):
        with pytest.raises(InvalidConfig) as refused:
            load(f"[backend.ce]\n{lines}\n")
        assert words in refused.value.message


REFUSED = {
    "slurm": (
        "--clusters=other|--clusters other|-M other|-Mother|-sM other|--qos=a -M x|-A x -W|--wait|-W",
        "--test-only|--test|--array=1-3|-a1-3|-a 1|--parsable|--job-name x|-J x|--output=/tmp/x|-o x|-e x|--error x",
        "--wrap=true|--quiet|-Q|-QH|--hold|--uid=0|--partition x|-p x|--nodes=2|-N2|--export=ALL|--requeue|--chdir=/",
        "-D /|--version|-V|--wai|--wa=1|--cluster=|--cluster x|--clu=x|--cl|--exp=NONE|--exp|--hol|--h|--ou=x|--er x|--no=2",
        "--nt=4|--ar 1-3|--q|--t|--ho|--us|--ui=0|--w|--j x|--par=x|--parti x|--cpus-per-t=2|--pr NONE|--sig=INT|--si INT",
        "--begin=now+1hour|-b 20:00|--dependency=afterok:5|-d singleton|--dep=after:1|--beg 20:00",
    ),
    "gridengine": (
        "-sync y|-now y|-terse|-t 1-3|-N x|-o x|-e x|-j n|-S /bin/sh|-C x|-r y|-q other.q|-pe smp 4|-h|-V|-w v|-w p",
        "-verify|-clear|-@ file|-P a -sync y|-b y|-a 202612010000|-hold_jid 5|-hold_jid_ad 5",
    ),
    "htcondor": (
        "-name other|-n other|-remote other|-pool cm|-addr <x>|-terse|-spool|-queue 5|-interactive|-i|-dry-run x|-dump x",
        "-verbose|-append 'x = 1' -name y|--name y|-address <x>|-ad <x>|-po cm|-p cm|-rem x|-dry-run:hash x|-dr:def x|-dr x",
        "-du x|-ter|-sp|-f x|-file x|-fact|-g|-generator|-digest x|-s|-v|-q 2",
    ),
    "arc": (
        "(jobname='x')|(queue=other)|(stdout='x')|(dryrun='yes')|(Count=4)|(output_files=('x' ''))",
        "(starttime='2026-12-01 00:00:00')|(start_time=x)",
        "(runtimeenvironment='A') (executable='b')",
    ),
}
TAKEN = {
    "slurm": (
        "--qos=pilots -A physics|-Aphysics|-A -M|--account M|--gres=gpu:1|--exclusive|--mem=4G|--time=60|-s|-x node1",
        "--exclude node|--cluster-constraint=a|--export-file=x|--nodelist=a|--ntasks-per-node=1|--no-requeue|-C 'a&b'",
        "--wait-all-nodes=0|--wait-all|--reservation=a|--prior=1|--cons=a|--ti=60|--qos q|--exclu|--comm=wait",
    ),
    "gridengine": ("-P physics|-l gpu=1|-p -5|-w e|-A team|-m n|-notify|-v A=b|-tc 5",),
    "htcondor": (
        "-append '+Project = \"a\"'|-a 'x = 1'|-batch-name p|-disable|universe=docker|-ap 'x = 1'|-d|-di|-de|-debug:D_ALL",
    ),
    "arc": ("(runtimeenvironment='ENV/PROXY')|(nodeaccess=exclusive)|(priority=5)",),
}


def with_options(table):
    """A configuration that has each of these options in a queue and, where there are such options, in a section; and by the
    lines of both files the words there.
    """
    own, sites, lines = "", SITES, {}
    for kind, some in table.items():
        for number, words in enumerate("|".join(some).split("|")):
            name, option = f"{kind}{number}", f' = """{words}"""\n'
            own += f"[backend.{name}]\ntype = '{kind}'\n"
            own += "url = 'https://ce/arex'\n" if kind == "arc" else f"submit_options{option}"
            lines["lode.toml", own.count("\n")] = words
            sites += (
                f"[site.S.ce.{name}]\nBackend = '{name}'\n[site.S.ce.{name}.queue.q]\nSubmitOptions{option}"
            )
            lines["sites.toml", sites.count("\n")] = words
    of_arc = {words for words in lines.values() if words.startswith("(")}
    return (
        own,
        sites,
        {at: words for at, words in lines.items() if at[0] == "sites.toml" or words not in of_arc},
    )


def test_options_that_would_hide_pilots_or_their_numbers_are_refused_by_name_where_they_stand(load):
    own, sites, wanted = with_options(REFUSED)
    with pytest.raises(InvalidConfig) as of_sections:
        load(own)
    with pytest.raises(InvalidConfig) as of_queues:
        load(
            "\n".join(line for line in own.split("\n") if "submit_options" not in line),
            sites.removeprefix(SITES),
        )
    faults = [*of_sections.value.data["faults"], *of_queues.value.data["faults"]]
    found = {(Path(one["source"]).name, one["line"]): one["message"] for one in faults}
    assert found.keys() == wanted.keys()
    for at, words in wanted.items():
        assert "ubmit" in found[at]
        assert any(word.split("=")[0].strip("(-") in found[at] for word in words.split()), (words, found[at])


def test_other_options_are_taken(load):
    own, sites, _ = with_options(TAKEN)
    load(own, sites.removeprefix(SITES))


def test_what_is_wrong_with_an_option_and_what_to_do_is_said(load):
    sites = "[site.S.ce.c]\nBackend = 'slurm'\n[site.S.ce.c.queue.q]\nSubmitOptions = '--clusters=other'\n"
    with pytest.raises(InvalidConfig) as caught:
        load("", sites)
    (fault,) = caught.value.data["faults"]
    assert fault["message"] == (
        "SubmitOptions of S/c/q (slurm): --clusters=other: pilots would be on another cluster than the one that is asked "
        "about them; give that cluster a submit host of its own, as by Backend = slurm@HOST"
    )
    only = "[site.S.ce.c.queue.q]\nBackend = 'slurm'\n[site.S.ce.c.queue.q.vo.lab]\nSubmitOptions = '-W'\n"
    with pytest.raises(InvalidConfig, match="-W: the command would answer only when the pilots have ended"):
        load("", only)
    for name in ("SLURM_CLUSTERS", "SBATCH_WAIT", "SQUEUE_PARTITION"):
        with pytest.raises(InvalidConfig, match=name):
            load(f"[backend.slurm.environment]\n{name} = 'x'")
    load("[backend.slurm.environment]\nSLURM_CONF = '/etc/slurm/other.conf'\nSBATCH_ACCOUNT = 'a'")
