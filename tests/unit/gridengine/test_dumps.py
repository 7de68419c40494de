"""Dumps of qconf as configuration files, and the settings that have no place in them."""

import tomllib
from pathlib import Path

import pytest

from lodesman.base.errors import InvalidConfig, InvalidRequest, SyntaxFault
from lodesman.languages.gridengine.dumps import convert_dumps

QUEUE = """qname                 all.q
hostlist              @gpu node1
seq_no                0
load_thresholds       np_load_avg=1.75
pe_list               make smp
rerun                 FALSE
slots                 1,[@gpu=8], \\
                      [node3=2],[node9=4]
prolog                NONE
owner_list            NONE
user_lists            staff
complex_values        matlab=10
jc_list               ANY_JC,[node1=NO_JC]
h_rt                  240:00:00
h_cpu                 INFINITY
h_vmem                4G,[node1=8G]
"""
DUMPS = {
    "sq.all.q": QUEUE,
    "sq.short": "qname short\nhostlist @elsewhere\nslots 4\nh_rt 3600\nh_cpu 0:30:0\nh_vmem INFINITY\ncalendar night\n",
    "shgrp.@gpu": "group_name @gpu\nhostlist node2 node3\n",
    "su.staff": "name staff\ntype ACL\nfshare 0\noticket 0\nentries ada,bob\n",
    "sprj.genomics": "name genomics\noticket 0\nfshare 0\nacl staff\nxacl NONE\n",
    "srqs": "{\n   name fair\n   enabled TRUE\n   limit users {*} to slots=10\n}\n",
    "sconf": "#global:\nmailer /usr/bin/mail\njsv_url script:/opt/jsv.sh\njsv_allowed_mod none\nmax_u_jobs 100\n"
    "enforce_project true\nuser_lists none\ndefault_jc app\nenforce_jc true\n",
    "sjc.app": "jcname app\nvariant_list NONE\n",
    "sp.smp": "pe_name smp\nslots 999\nallocation_rule $pe_slots\n",
    "sul": "staff\nothers\n",
    "notes.txt": "x",
}


def test_each_dump_has_its_file():
    files = convert_dumps(DUMPS, "Cluster").files
    assert set(files) == {
        "sites.toml", "lode.toml", "quotas.rqs", "classes/app.jc", "gridengine/shgrp.@gpu", "gridengine/su.staff",
        "gridengine/sprj.genomics",
    }  # fmt: skip
    assert files["quotas.rqs"] == DUMPS["srqs"]
    assert tomllib.loads(files["lode.toml"]) == {
        "resources": {"files": ["sites.toml"]},
        "gridengine": {"files": ["gridengine/*"], "enforce_project": True},
        "job_classes": {"default_jc": "app", "enforce_jc": True},
        "jsv": {"server": "script:/opt/jsv.sh", "allowed_modifications": "none"},
    }


def test_queues_are_those_of_a_site():
    found = tomllib.loads(convert_dumps(DUMPS, 'A "site"').files["sites.toml"])
    ce = found["site"]['A "site"']["ce"]["gridengine"]
    assert ce["Backend"] == "gridengine"
    assert ce["queue"] == {
        # node1 has 1, node2 has 8, node3 has 2; node9 is no host of the queue.
        "all.q": {"WallTime": 864_000, "MaxRAM": 4096, "Slots": 11, "JcList": "ANY_JC,[node1=NO_JC]"},
        "short": {"WallTime": 3600, "CPUTime": 1800},
    }


def test_what_has_no_place_is_listed_with_what_does_the_same():
    left = [(one.file, one.setting) for one in convert_dumps(DUMPS, "Cluster").left_out]
    assert sorted(left) == sorted([
        ("notes.txt", "the file"), ("sq.all.q", "h_vmem 4G,[node1=8G]"), ("sq.all.q", "pe_list make smp"),
        ("sq.all.q", "user_lists staff"), ("sq.all.q", "complex_values matlab=10"), ("sq.all.q", "load_thresholds"),
        ("sq.short", "slots 4"), ("sq.short", "calendar night"), ("sconf", "max_u_jobs 100"), ("sconf", "mailer"),
        ("sp.smp", "allocation_rule $pe_slots"), ("sul", "others"),
    ])  # fmt: skip
    assert all(one.reason for one in convert_dumps(DUMPS, "Cluster").left_out)


def test_dumps_that_cannot_be_read_are_named():
    with pytest.raises(InvalidRequest, match="There is no dump of qconf"):
        convert_dumps({"notes.txt": "x", "sq": "qname x\n", "sc.old": ""}, "Cluster")
    with pytest.raises(InvalidConfig, match=r"sq\.x: 'soon' is no value of type TIME"):
        convert_dumps({"sq.x": "qname x\nhostlist a\nh_rt soon\n"}, "Cluster")
    with pytest.raises(SyntaxFault) as caught:
        convert_dumps({"shgrp.@a": "hostlist x\n"}, "Cluster")
    assert caught.value.data["source"] == "shgrp.@a"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "sq.x",
            "cluster queue x is not here\n",
            "There is no qname. Make the file anew: qconf -sq x > sq.x",
        ),
        ("sq.x", "qname x\nslots 4\n", "There is no hostlist."),
        (
            "sq.x",
            "hostlist a\nqname: x\n",
            "'qname:' is no name of a setting. Make the file anew: qconf -sq x > sq.x",
        ),
        (
            "sconf",
            "error: no permission\n",
            "'error:' is no name of a setting. Make the file anew: qconf -sconf > sconf",
        ),
        ("sp.smp", "slots 999\n", "There is no pe_name."),
        (
            "sq.x",
            "qname x\nhostlist a\nslots 4\nslots 8\n",
            "line 4, column 1: slots is given twice, first at line 3.",
        ),
        (
            "sq.x",
            "qname all.q\nhostlist a\n",
            "line 1, column 1: qname is all.q, and the file is named sq.x.",
        ),
        ("sp.smp", "pe_name mpi\n", "pe_name is mpi, and the file is named sp.smp."),
    ],
)
def test_a_dump_that_no_qconf_printed_is_refused_and_makes_no_row(name, text, says):
    with pytest.raises(SyntaxFault) as caught:
        convert_dumps({name: text}, "Cluster")
    assert says in str(caught.value)
    assert caught.value.data["source"] == name


def test_slots_are_read_also_where_hosts_are_not_known():
    with pytest.raises(InvalidConfig, match=r"sq\.x: '4,\[' is no value of type INT"):
        convert_dumps({"sq.x": "qname x\nhostlist @elsewhere\nslots 4,[\n"}, "Cluster")


def test_a_queue_as_8_1_9_prints_it():
    text = (Path(__file__).parents[2] / "data" / "gridengine" / "qconf-sq.txt").read_text()
    found = convert_dumps({"sq.all.q": text, "shgrp.@gpu": "group_name @gpu\nhostlist NONE\n"}, "Cluster")
    queue = tomllib.loads(found.files["sites.toml"])["site"]["Cluster"]["ce"]["gridengine"]["queue"]["all.q"]
    assert queue == {"WallTime": 86_400, "Slots": 2}
    assert [one.setting for one in found.left_out] == [
        "pe_list smp",
        "nsuspend, suspend_interval, min_cpu_interval, qtype, tmpdir, shell, shell_start_mode, notify",
    ]


def test_dumps_that_make_no_configuration_are_named():
    with pytest.raises(InvalidConfig, match=r"sq\.x: -5 is below 0"):
        convert_dumps({"sq.x": "qname x\nhostlist a\nslots -5\n"}, "Cluster")
