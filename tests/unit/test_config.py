"""The server's configuration: defaults that are safe, and errors that name the file and the value."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.base.errors import InvalidConfig, LodesmanError
from lodesman.server.config import load_config
from lodesman.server.store import SqliteDatabase

TLS_PAIR = Path(__file__).parents[1] / "data" / "tls" / "server.pem"  # certificate and key in one
SITES = """
[site.A]
VO = ["lab"]
[site.A.ce.c.queue.q]
Slots = 2
CPUTime = "1 h"
[group.physics]
vo = "lab"
share = 10
"""


@pytest.fixture
def write(tmp_path):
    """Write a file of the configuration's directory; returns its path."""

    def write(text, name="lode.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def pair(tmp_path):
    """A file with certificate and key that only its owner can read."""
    path = tmp_path / "pair.pem"
    path.write_bytes(TLS_PAIR.read_bytes())
    path.chmod(0o600)
    return path


def test_jobs_are_packed_unless_the_file_says_otherwise(write):
    assert load_config(write("")).matching.packing == "waste"
    assert load_config(write("[matching]\npacking = 'any'\n")).matching.packing == "any"
    assert "packing" in refused(write("[matching]\npacking = 'best'\n")).message


def refused(path, **overrides) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as caught:
        load_config(path, overrides=overrides)
    return caught.value


def fault_of(path) -> LodesmanError | None:
    try:
        load_config(path)
    except LodesmanError as fault:
        return fault
    return None


def test_without_a_file_everything_has_a_safe_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load_config(None)
    assert config.url == "http://127.0.0.1:7777"
    assert config.data == tmp_path / "lode-data"
    assert config.database == SqliteDatabase(tmp_path / "lode-data" / "lode.db")
    assert config.pilots.lease_seconds == 1_800
    assert config.polling_seconds > 0
    assert config.resources.tree.sites == {}
    assert config.admin.name == "admin"


def test_an_empty_file_is_all_defaults(write):
    assert load_config(write("")).server.port == 7777


def test_values_of_a_file(write):
    write(SITES, "sites.toml")
    config = load_config(
        write(
            """
            [server]
            port = 8000
            data = "store"
            sandbox_mb = 5
            [pilots]
            lease_seconds = 60
            stop_at_exit = true
            [admin]
            name = "root"
            groups = ["physics"]
            [resources]
            files = ["sites.toml"]
            [director]
            PollingTime = 5
            pilotsPerIteration = 3
            """
        )
    )
    assert (config.server.port, config.server.sandbox_mb) == (8000, 5)
    assert (config.pilots.lease_seconds, config.pilots.stop_at_exit) == (60.0, True)
    assert config.admin.groups == ("physics",)
    assert list(config.resources.tree.sites) == ["A"]
    assert config.resources.groups["physics"].share == 10
    assert (config.polling_seconds, config.director.pilots_per_iteration) == (5.0, 3)


def test_relative_names_count_from_the_file_wherever_one_is(write, tmp_path, monkeypatch):
    write(SITES, "sites.toml")
    write('[server]\ndata = "store"\n[resources]\nfiles = ["sites.toml"]')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    config = load_config(Path("../lode.toml"))
    assert config.data == tmp_path / "store"
    assert config.path == tmp_path / "lode.toml"
    assert config.resource_files == (tmp_path / "sites.toml",)


def test_single_values_are_overridden_and_the_rest_stays(write):
    path = write("[server]\nport = 8000\nsandbox_mb = 5")
    config = load_config(path, overrides={"server": {"port": 9000}, "pilots": {"idle_seconds": 4}})
    assert (config.server.port, config.server.sandbox_mb, config.pilots.idle_seconds) == (9000, 5, 4.0)


def test_several_resource_files_of_both_languages(write):
    write(SITES, "sites.toml")
    write(
        "Resources\n{\n Sites\n {\n  LCG\n  {\n   LCG.B.uk\n   {\n    CEs\n    {\n     ce\n     {\n      Queues\n      {\n"
        "       long\n       {\n        CPUTime = 100\n       }\n      }\n     }\n    }\n   }\n  }\n }\n}\n",
        "more.cfg",
    )
    config = load_config(write('[resources]\nfiles = ["sites.toml", "more.cfg"]'))
    assert set(config.resources.tree.sites) == {"A", "LCG.B.uk"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[server]\nport = 'x'", "port"),
        ("[server]\nport = 70000", "port"),
        ("[server]\nport = -1", "port"),
        ("[server]\nprot = 80", "prot"),
        ("[server]\nsandbox_mb = 0", "sandbox_mb"),
        ("[pilots]\nlease_seconds = 0", "lease_seconds"),
        ("[pilots]\nlease_seconds = -5", "lease_seconds"),
        ("[pilots]\nlease_seconds = nan", "lease_seconds"),
        ("[pilots]\nlife_seconds = 1.5", "life_seconds"),
        ("[pilots]\nstop_at_exit = 'yes'", "stop_at_exit"),
        ("[admin]\ngroups = 'physics'", "groups"),
        ("[resources]\nfiles = 'a.toml'", "files"),
        ("[servers]\nport = 80", "servers"),
        ("server = 80", "server"),
        ("[[server]]\nport = 80", "server"),
        ("[director]\nPollingTime = 'often'", "PollingTime"),
        ("[director]\nPollingTime = 0", "PollingTime"),
        ("[director]\nPollingTime = -1", "PollingTime"),
        ("[director]\nPollingTime = nan", "PollingTime"),
        ("[director]\nPollingTime = true", "PollingTime"),
        ("[director]\nPollingTime = [1]", "PollingTime"),
        ("[director]\npilotsPerIteration = 'many'", "pilotsPerIteration"),
        ("[director]\npilotPerIteration = 5", "pilotPerIteration"),
    ],
)
def test_a_wrong_value_is_named_with_its_file(write, text, word):
    path = write(text)
    wrong = refused(path)
    assert word in str(wrong)
    assert str(path) in str(wrong)
    assert "\n" not in wrong.message


@pytest.mark.parametrize("text", ["[server", "port 80", "a = 1\na = 2", "\x00", "a = " + "[" * 50_000])
def test_what_is_no_toml_is_named_with_its_file(write, text):
    path = write(text)
    assert str(path) in str(refused(path))


def test_files_that_cannot_be_read(tmp_path, write):
    missing = tmp_path / "missing.toml"
    assert str(missing) in str(refused(missing))
    assert str(tmp_path) in str(refused(tmp_path))
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# caf\xe9\n")
    assert str(latin) in str(refused(latin))
    path = write('[resources]\nfiles = ["missing-sites.toml"]')
    assert "missing-sites.toml" in str(refused(path))
    (tmp_path / "binary.cfg").write_bytes(b"\xff\xfe\x00")
    assert "binary.cfg" in str(refused(write('[resources]\nfiles = ["binary.cfg"]')))


def test_a_fault_in_a_resource_file_is_named_with_its_line(write):
    write(SITES.replace('"1 h"', '"one hour"'), "sites.toml")
    wrong = refused(write('[resources]\nfiles = ["sites.toml"]'))
    (fault,) = wrong.data["faults"]
    assert "CPUTime" in str(fault)
    assert "sites.toml" in str(fault)
    assert "6" in str(fault)


@pytest.mark.parametrize(
    "overrides",
    [
        {"server": {"port": "x"}},
        {"server": {"colour": 1}},
        {"colour": {"x": 1}},
        {"director": {"PollingTime": 0}},
    ],
)
def test_a_wrong_override_is_named(overrides):
    (section,) = overrides
    (option,) = overrides[section]
    assert option in str(refused(None, **overrides)) or section in str(refused(None, **overrides))


@pytest.mark.parametrize("text", ["server = 5", "server = [1]", "server = 'x'"])
def test_an_override_of_what_is_no_section(write, text):
    path = write(text)
    assert "server" in str(refused(path, server={"port": 80}))


# --- TLS ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "127.1", "::1", "localhost"])
def test_loopback_needs_no_tls(host):
    assert load_config(None, overrides={"server": {"host": host}}).server.host == host


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "localhost.example.org", "128.1"]
)
def test_elsewhere_the_server_does_not_listen_without_tls(host):
    wrong = refused(None, server={"host": host})
    assert "TLS" in wrong.message
    assert "127.0.0.1" in wrong.message
    assert wrong.data["section"] == "server"


def test_certificate_and_key_belong_together(write):
    for one in ("tls_certificate", "tls_key"):
        assert "belong together" in str(refused(write(f'[server]\n{one} = "x.pem"')))


def test_with_tls_it_may_listen_anywhere(write, pair):
    path = write(f'[server]\nhost = "0.0.0.0"\ntls_certificate = "{pair}"\ntls_key = "{pair}"')
    config = load_config(path)
    assert config.url == config.pilot_url == "https://127.0.0.1:7777"


def test_pilots_get_the_public_address():
    config = load_config(None, overrides={"server": {"public_url": "https://grid.example:443"}})
    assert config.pilot_url == "https://grid.example:443"
    assert config.url == "http://127.0.0.1:7777"


@pytest.mark.parametrize(
    "url", ["https://grid.example", "https://grid.example:8443/lode", "http://127.0.0.1:9", "http://[::1]:9"]
)
def test_a_public_address_where_tokens_stay_private(url):
    assert load_config(None, overrides={"server": {"public_url": url}}).pilot_url == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://grid.example", "in the clear"),
        ("http://192.0.2.1:7777", "in the clear"),
        ("http://localhost.example.org", "in the clear"),
        ("HTTP://grid.example", "in the clear"),
        ("grid.example:7777", "is unusable"),
        ("https://", "is unusable"),
        ("https://grid.example:port", "cannot be read"),
    ],
)
def test_a_public_address_that_would_give_tokens_away_is_refused(write, url, why):
    wrong = refused(write(f'[server]\nport = 7000\npublic_url = "{url}"'))
    assert why in wrong.message
    (fault,) = wrong.data["faults"]
    assert (fault["line"], fault["section"]) == (3, "server")


def test_a_server_with_tls_publishes_no_plain_address(write, pair):
    path = write(
        f'[server]\ntls_certificate = "{pair}"\ntls_key = "{pair}"\npublic_url = "http://grid.example"'
    )
    assert "in the clear" in refused(path).message


def test_an_address_with_colons_is_written_so_that_a_client_can_read_it():
    assert load_config(None, overrides={"server": {"host": "::1"}}).url == "http://[::1]:7777"


@at_most(150)
@given(
    st.one_of(
        st.text(max_size=200),
        st.lists(
            st.sampled_from(
                [
                    "[server]",
                    "[director]",
                    "[pilots]",
                    "port = 1",
                    "data = 5",
                    "PollingTime = inf",
                    "a.b = 1",
                    "[[x]]",
                ]
            )
        ).map("\n".join),
    )
)
@example("[director]\nPollingTime = 1e400")
@example("[director.Pool]\nx = 1")
def test_any_text_is_a_configuration_or_a_clear_error(tmp_path, text):
    path = tmp_path / "any.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    fault = fault_of(path)
    assert fault is None or str(path) in str(fault)


# --- all faults of all files ---------------------------------------------------------------------------


def places(path, **overrides):
    """(file name, line, section, beginning of the message) of each fault."""
    wrong = refused(path, **overrides)
    return [
        (
            Path(fault["source"]).name,
            fault["line"],
            fault["section"],
            re.split(":|;| must", fault["message"])[0],
        )
        for fault in wrong.data["faults"]
    ]


def test_every_fault_of_every_file_has_its_position(write):
    write('[site.S.ce.c.queue.q]\nCPUTime = "2 parsecs"\nMaxRAM = "lots"\n', "sites.toml")
    write("Resources\n{\nSites\n{\nG\n{\nS\n{\nX = 1\nX = 2\n}\n}\n}\n}\n", "more.cfg")
    path = write(
        """
[server]
port = 99999
prot = 1
tls_key = "k.pem"
[pilots]
idle_seconds = "long"
[admin]
groups = [1]
[resources]
files = ["sites.toml", "gone.toml", "more.cfg"]
[director]
PollingTime = "often"
pilotsPerIteration = "many"
[director.Local]
maxThreadsInPool = "x"
[director.Other]
maxThreadsInPool = 2
[colour]
"""
    )
    assert places(path) == [
        ("gone.toml", 0, "", "it cannot be read"),
        ("lode.toml", 3, "server", "port"),
        ("lode.toml", 4, "server", "prot is not an option of the configuration"),
        ("lode.toml", 5, "server", "tls_certificate and tls_key belong together, and tls_certificate is not given"),
        ("lode.toml", 7, "pilots", "idle_seconds"),
        ("lode.toml", 9, "admin", "groups"),
        ("lode.toml", 13, "director", "PollingTime"),
        ("lode.toml", 14, "director", "pilotsPerIteration"),
        ("lode.toml", 16, "director.Local", "Local maxThreadsInPool"),
        ("lode.toml", 17, "director", "Other is no pool of SubmitPools (Local)"),
        ("lode.toml", 19, "colour", "colour is not a section of the configuration"),
        ("more.cfg", 10, "/Resources/Sites/G/S", "column 1"),
        ("sites.toml", 2, "site.S.ce.c.queue.q", "CPUTime"),
        ("sites.toml", 3, "site.S.ce.c.queue.q", "MaxRAM"),
    ]  # fmt: skip


def test_a_fault_of_an_override_is_no_fault_of_the_file(write):
    path = write("[server]\nport = 80\n")
    assert places(path, server={"port": "x"}, director={"PollingTime": 0}) == [
        ("--set", 0, "server", "port"),
        ("--set", 0, "director", "PollingTime"),
    ]


def test_without_a_file_faults_name_the_configuration():
    assert places(None, server={"port": -1}) == [("--set", 0, "server", "port")]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[server]\nport = = 1", (2, "server")),
        ("\nport", (2, "")),
        ("[a.b]\nx = 1\n[c\n", (3, "a.b")),
    ],
)
def test_a_text_that_is_no_toml_has_a_line_and_a_section(write, text, place):
    (fault,) = refused(write(text)).data["faults"]
    assert (fault["line"], fault["section"]) == place


# --- many resource files -------------------------------------------------------------------------------


def test_patterns_stand_for_all_files_that_fit(write, tmp_path):
    (tmp_path / "sites.d").mkdir()
    for name in ("b", "a", "c"):
        write(f"[site.{name}]\n", f"sites.d/{name}.toml")
    write("not read", "sites.d/old.txt")
    (tmp_path / "sites.d" / "dir.toml").mkdir()
    config = load_config(write('[resources]\nfiles = ["sites.d/*.toml"]'))
    assert list(config.resources.tree.sites) == ["a", "b", "c"]
    assert [file.name for file in config.resource_files] == ["a.toml", "b.toml", "c.toml"]


def test_a_file_that_two_names_stand_for_is_read_once(write):
    write(SITES, "sites.toml")
    config = load_config(write('[resources]\nfiles = ["sites.toml", "s*.toml", "./sites.toml"]'))
    assert [file.name for file in config.resource_files] == ["sites.toml"]


def test_a_name_may_resemble_a_pattern(write):
    write("[site.X]\n", "sites[1].toml")
    assert list(load_config(write('[resources]\nfiles = ["sites[1].toml"]')).resources.tree.sites) == ["X"]


def test_an_absolute_pattern_in_a_directory_that_resembles_one(tmp_path):
    odd = tmp_path / "a[b]"
    odd.mkdir()
    (odd / "s.toml").write_text("[site.X]\n")
    (odd / "lode.toml").write_text('[resources]\nfiles = ["*s.toml"]')
    assert list(load_config(odd / "lode.toml").resources.tree.sites) == ["X"]
    (tmp_path / "lode.toml").write_text(f'[resources]\nfiles = ["{tmp_path}/a?b?/s.*"]')
    assert list(load_config(tmp_path / "lode.toml").resources.tree.sites) == ["X"]


def test_a_pattern_that_nothing_fits_is_a_fault(write):
    assert places(write('[resources]\nfiles = ["sites.d/*.toml"]')) == [
        ("lode.toml", 2, "resources", "no file is called sites.d/*.toml")
    ]


# --- certificates --------------------------------------------------------------------------------------


def test_missing_certificates_are_faults(write, tmp_path):
    found = places(write('[server]\nhost = "0.0.0.0"\ntls_certificate = "c.pem"\ntls_key = "k.pem"'))
    assert [(line, message) for _, line, _, message in found] == [
        (3, f"{tmp_path}/c.pem cannot be read"),
        (4, f"{tmp_path}/k.pem cannot be read"),
    ]


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o606])
def test_a_key_that_others_may_read_is_refused(write, pair, mode):
    pair.chmod(mode)
    assert tls(write, pair, pair) == f"others may read {pair}; run: chmod 600 {pair}"


def test_a_group_may_read_the_key_of_root_alone(write, pair):
    pair.chmod(0o640)
    if not pair.stat().st_uid:
        path = write(f'[server]\ntls_certificate = "{pair}"\ntls_key = "{pair}"')
        assert load_config(path).url.startswith("https://")
        os.chown(pair, 1, 1)
    assert "others may read" in tls(write, pair, pair)


def tls(write, certificate, key):
    path = write(f'[server]\ntls_certificate = "{certificate}"\ntls_key = "{key}"')
    (fault,) = refused(path).data["faults"]
    return fault["message"]


def test_certificates_that_are_none(write, tmp_path, pair):
    write("nothing", "c.pem").chmod(0o600)
    assert "are not a certificate and key in PEM" in tls(write, tmp_path / "c.pem", pair)
    assert "are not a certificate and key in PEM" in tls(write, pair, tmp_path / "c.pem")


def test_a_key_of_another_certificate(write, tmp_path, pair):
    key = tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True
    )
    assert tls(write, pair, key) == f"{key} is not the key of {pair}"


def test_a_key_with_a_password_is_refused_without_a_prompt(write, tmp_path, pair):
    key = tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "ec", "-in", pair, "-aes128", "-passout", "pass:secret", "-out", key],
        check=True, capture_output=True,
    )  # fmt: skip
    assert "without a password" in tls(write, pair, key)


# --- the database ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://ann@host/lode", "url begins with postgresql://"),
        ("postgresql://ann@[host/lode", "url is no address"),
    ],
)
def test_a_database_that_no_url_names(tmp_path, url, words):
    file = tmp_path / "lode.toml"
    file.write_text(f'[store]\nurl = "{url}"\n')
    with pytest.raises(InvalidConfig, match=words):
        load_config(file)


@pytest.mark.parametrize(
    "url", ["postgresql://ann:s3cret@host/lode", "postgresql://host/lode?password=s3cret"]
)
def test_a_password_stands_where_its_owner_alone_can_read_it(tmp_path, url):
    file = tmp_path / "lode.toml"
    file.write_text(f'[store]\nurl = "{url}"\n')
    file.chmod(0o644)
    with pytest.raises(InvalidConfig, match="others may read") as refused:
        load_config(file)
    assert "s3cret" not in f"{refused.value!r} {refused.value} {refused.value.data}"
    file.chmod(0o600)
    config = load_config(file)
    assert "s3cret" not in repr(config.database)
    file.write_text("")
    with pytest.raises(InvalidConfig, match="the arguments of a command show") as refused:
        load_config(file, overrides={"store": {"url": url}})
    assert "s3cret" not in f"{refused.value!r} {refused.value} {refused.value.data}"


def test_a_file_of_sqlite_elsewhere(tmp_path):
    config = load_config(None, overrides={"store": {"url": f"sqlite://{tmp_path}/other%20place.db"}})
    assert config.database == SqliteDatabase(tmp_path / "other place.db")


# --- the server's verifier (JSV) --------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "check.sh"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_verifier_as_it_is_configured(write, script):
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    path = write(f'[jsv]\nserver = "script:{user}@{script}"\nworkers = 4\ntime_out_seconds = 2\n')
    found = load_config(path).jsv
    assert (found.is_set, found.workers, found.time_out_seconds) == (True, 4, 2.0)
    assert not load_config(None).jsv.is_set


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("script:/no/such/script", "not a file or not executable"),
        ("script:check.sh", "the path is not absolute"),
        ("java:/x", "the type 'java' is unknown"),
        ("script:no-such-account@{script}", "there is no such account"),
        ("script:root@{script}", "root" if os.geteuid() == 0 else "permission"),
    ],
)
def test_a_verifier_that_cannot_run_is_a_fault_with_its_line(write, script, url, words):
    path = write(f'[jsv]\nworkers = 1\nserver = "{url.format(script=script)}"\n')
    (fault,) = refused(path).data["faults"]
    assert words in fault["message"]
    assert (fault["source"], fault["line"], fault["section"]) == (str(path), 3, "jsv")


@pytest.mark.parametrize(
    "line", ["workers = 0", "time_out_seconds = 0", 'request = "x"', 'sge_root = "/no/tree"']
)
def test_other_options_of_a_verifier_that_are_wrong(write, script, line):
    account = "nobody@" if os.geteuid() == 0 else ""
    path = write(f'[jsv]\nserver = "script:{account}{script}"\n{line}\n')
    assert line.partition(" ")[0] in refused(path).data["faults"][0]["message"]


def test_kept_texts_are_good_although_the_script_has_gone_since_then(write, script):
    account = "nobody@" if os.geteuid() == 0 else ""
    path = write(f'[jsv]\nserver = "script:{account}{script}"\n')
    kept = load_config(path).texts
    script.unlink()
    assert load_config(path, texts=kept).jsv.is_set


def test_system_defaults_are_attributes_that_a_job_may_have(write):
    good = '[job_classes.defaults]\nr = "n"\nl_hard = "h_rt=3600,vf=1G"\nA = "usual"\n'
    assert load_config(write(good)).job_classes.defaults["l_hard"] == "h_rt=3600,vf=1G"
    wrong = '[job_classes.defaults]\nWallTime = "60"\nr = "maybe"\nl_hard = "a=[1"\n'
    faults = [str(one["message"]) for one in refused(write(wrong)).data["faults"]]
    assert len(faults) == 3
    assert "jobs have no such attribute in Grid Engine" in faults[0]
    assert "MaxAttempts" in faults[1]
    assert "never closed" in faults[2]
    for text, words in (("s=-1", "no job can use -1 of slots"), ("h_vmm=1G", "there is no resource 'h_vmm'")):
        (fault,) = refused(write(f'[job_classes.defaults]\nl_hard = "{text}"\n')).data["faults"]
        assert words in str(fault["message"])
