"""`lode import gridengine`: files that a server takes, and nothing written over another file."""

import json

from tests.unit.gridengine.test_dumps import DUMPS

TAKEN = {name: text for name, text in DUMPS.items() if name != "sconf"}


def test_the_files_are_a_good_configuration_and_are_not_written_twice(lode, tmp_path):
    dumps, target = tmp_path / "dumps", tmp_path / "new"
    dumps.mkdir()
    for name, text in TAKEN.items():
        (dumps / name).write_text(text)
    words = ("import", "gridengine", str(dumps), "--to", str(target), "--site", "Cluster")
    tried = lode(*words, "--dry-run")
    assert (tried.code, target.exists()) == (0, False)
    made = lode(*words)
    assert made.code == 0
    assert made.out == tried.out
    assert "complex_values matlab=10" in made.out
    assert f"lode quota add {target / 'quotas.rqs'}" in made.err
    assert f"lode class add {target / 'classes'}/" in made.err
    checked = lode("config", "check", str(target / "lode.toml"))
    assert "Cluster (2 queues)" in checked.out, checked.err
    (target / "sites.toml").write_text("mine")
    again = lode(*words)
    assert (again.code, (target / "sites.toml").read_text()) == (6, "mine")
    assert "exists; nothing was written. Name another folder" in again.err
    assert tried.err == "lode: Nothing was written.\n"
    assert (lode(*words, "--dry-run").code, lode(*words, "--dry-run").err) == (6, again.err)


def test_for_programs(lode, tmp_path):
    (tmp_path / "sul").write_text("staff\n")
    found = json.loads(lode("import", "gridengine", str(tmp_path), "--dry-run", "--json").out)
    assert found["files"] == ["imported/lode.toml"]
    assert found["left_out"][0]["setting"] == "staff"


def test_a_dump_that_is_broken_is_named_with_its_line(lode, tmp_path):
    (tmp_path / "sq.all.q").write_text("hostlist a\nqname: all.q\n")
    done = lode("import", "gridengine", str(tmp_path), "--dry-run")
    assert (done.code, done.out) == (1, "")
    place = tmp_path / "sq.all.q"
    assert done.err == (
        f"lode: {place}:2:1: 'qname:' is no name of a setting. Make the file anew: qconf -sq all.q > sq.all.q\n"
    )


def test_quota_sets_that_could_not_be_added_are_named_with_their_line(lode, tmp_path):
    rules = "{\n  name a\n  enabled TRUE\n  limit to slots=4\n}\n"
    (tmp_path / "srqs").write_text(rules * 2)
    done = lode("import", "gridengine", str(tmp_path), "--to", str(tmp_path / "new"))
    assert (done.code, done.out, (tmp_path / "new").exists()) == (1, "", False)
    assert f"{tmp_path / 'srqs'}:7:8: the set a is given twice, first at line 1" in done.err
    (tmp_path / "srqs").write_text(rules)
    assert lode("import", "gridengine", str(tmp_path), "--dry-run").code == 0
