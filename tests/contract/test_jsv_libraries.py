"""Our libraries under our host: one script in six dialects does the same; stock libraries as the copied table has them."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.kits.jsv_kit import JOB, PYTHON, STOCK, one, shell, table, write_script

from lodesman.server.jsv import OWN_LIBRARIES, JsvContext, JsvUrl, JsvVerdict, ScriptSettings
from lodesman.server.jsv.runner import ScriptWorker

# What each dialect does; the texts must come out the same.
SHELL_BODY = """
  jsv_log_info "$(jsv_get_param N) $(jsv_is_param N) $(jsv_is_param none) [$jsv_param_CMDARG0] $(jsv_get_param jc)"
  jsv_log_warning "$(jsv_get_env FOO) $(jsv_is_env none) $(jsv_get_env TEXT)"
  jsv_log_error "$(jsv_sub_is_param l_hard h_vmem) $(jsv_sub_get_param l_hard a) $(jsv_sub_is_param l_hard x)"
  jsv_sub_del_param l_hard h_vmem
  jsv_sub_add_param l_hard a 7
  jsv_sub_add_param l_hard b
  jsv_sub_add_param ac c 5
  jsv_set_param N "new name *"
  jsv_del_param cwd
  jsv_add_env A "x y"
  jsv_mod_env FOO z
  jsv_del_env TEXT
  jsv_correct "well done"
"""
PERL = """#!/usr/bin/perl
use strict; use warnings;
use lib "$ENV{SGE_ROOT}/util/resources/jsv";
use JSV qw(:ALL);
sub word { return $_[0] ? 'true' : 'false' }
jsv_on_start(sub { jsv_send_env(); });
jsv_on_verify(sub {
  my %p = jsv_get_param_hash();
  my $first = "[$p{CMDARG0}]";
  jsv_log_info(join ' ', $p{N}, word(jsv_is_param('N')), word(jsv_is_param('none')), $first, $p{jc} // '');
  jsv_log_warning(join ' ', jsv_get_env('FOO'), word(jsv_is_env('none')), jsv_get_env('TEXT'));
  my @there = map { word(jsv_sub_is_param('l_hard', $_)) } qw(h_vmem x);
  jsv_log_error(join ' ', $there[0], $p{l_hard}{a} // '', $there[1]);
  jsv_sub_del_param('l_hard', 'h_vmem');
  jsv_sub_add_param('l_hard', 'a', 7);
  jsv_sub_add_param('l_hard', 'b');
  jsv_sub_add_param('ac', 'c', 5);
  jsv_set_param('N', 'new name *');
  jsv_del_param('cwd');
  jsv_add_env('A', 'x y');
  jsv_mod_env('FOO', 'z');
  jsv_del_env('TEXT');
  jsv_correct('well done');
});
jsv_main();
"""
TCL = """#!/usr/bin/env tclsh
source "$env(SGE_ROOT)/util/resources/jsv/jsv_include.tcl"
proc word {x} { return [expr {$x ? "true" : "false"}] }
proc jsv_on_start {} { jsv_send_env }
proc jsv_on_verify {} {
  set first "\\[$::jsv_param_CMDARG0\\]"
  jsv_log_info "[jsv_get_param N] [word [jsv_is_param N]] [word [jsv_is_param none]] $first [jsv_get_param jc]"
  jsv_log_warning "[jsv_get_env FOO] [word [jsv_is_env none]] [jsv_get_env TEXT]"
  jsv_log_error "[word [jsv_sub_is_param l_hard h_vmem]] [jsv_sub_get_param l_hard a] [word [jsv_sub_is_param l_hard x]]"
  jsv_sub_del_param l_hard h_vmem
  jsv_sub_add_param l_hard a 7
  jsv_sub_add_param l_hard b
  jsv_sub_add_param ac c 5
  jsv_set_param N "new name *"
  jsv_del_param cwd
  jsv_add_env A "x y"
  jsv_mod_env FOO z
  jsv_del_env TEXT
  jsv_correct "well done"
}
jsv_main
"""
PYTHON_HEAD = f"""#!{PYTHON}
import os, sys
sys.dont_write_bytecode = True
sys.path.append(os.environ["SGE_ROOT"] + "/util/resources/jsv")
def word(x): return "true" if x else "false"
"""
PYTHON_BODY = """
  first = "[" + {0}get_param("CMDARG0") + "]"
  there = [word({0}is_param(name)) for name in ("N", "none")]
  {0}log_info(" ".join([{0}get_param("N"), *there, first, {0}get_param("jc")]))
  {0}log_warning(" ".join([{0}get_env("FOO"), word({0}is_env("none")), {0}get_env("TEXT")]))
  there = [word({0}sub_is_param("l_hard", name)) for name in ("h_vmem", "x")]
  {0}log_error(" ".join([there[0], {0}sub_get_param("l_hard", "a"), there[1]]))
  {0}sub_del_param("l_hard", "h_vmem")
  {0}sub_add_param("l_hard", "a", "7")
  {0}sub_add_param("l_hard", "b")
  {0}sub_add_param("ac", "c", "5")
  {0}set_param("N", "new name *")
  {0}del_param("cwd")
  {0}add_env("A", "x y")
  {0}mod_env("FOO", "z")
  {0}del_env("TEXT")
  {0}correct("well done")
"""
FUNCTIONS = (
    PYTHON_HEAD
    + "from JSV import *\ndef jsv_on_start(): jsv_send_env()\ndef jsv_on_verify():"
    + PYTHON_BODY.format("jsv_")
    + "jsv_main()\n"
)
OBJECT = (
    PYTHON_HEAD
    + "from JSV import JSV\njsv = JSV()\ndef on_verify():"
    + PYTHON_BODY.format("jsv.")
    + 'jsv.on_start = lambda: jsv.send("SEND ENV")\njsv.on_verify = on_verify\njsv.main()\n'
)
DIALECTS = {
    "dash": partial(shell, SHELL_BODY, name="dash"),
    "bash": partial(shell, SHELL_BODY, name="bash"),
    "perl": lambda: PERL,
    "tcl": lambda: TCL,
    "python-functions": lambda: FUNCTIONS,
    "python-object": lambda: OBJECT,
}
PROGRAMS = {"perl": "/usr/bin/perl", "tcl": "tclsh", "python-functions": PYTHON, "python-object": PYTHON}
PATIENT = ScriptSettings(time_out_seconds=60.0)
WITH_CLASS = replace(JOB, values={**JOB.values, "jc": "app.large"})


def need(dialect: str) -> None:
    program = PROGRAMS.get(dialect, dialect)
    if not shutil.which(program):
        pytest.skip(f"there is no {program} here")


@pytest.fixture(params=DIALECTS)
def worker(request, tmp_path):
    need(request.param)
    url = write_script(tmp_path / "script", DIALECTS[request.param]())
    found = ScriptWorker(url, JsvContext.CLIENT, ScriptSettings())
    yield found
    found.kill()


def texts(outcome):
    return [(line.level, " ".join(line.text.split())) for line in outcome.log]


def test_one_script_in_all_dialects(worker):
    outcome = worker.verify(WITH_CLASS)
    assert (outcome.verdict, outcome.message) == (JsvVerdict.CORRECTED, "well done")
    assert texts(outcome) == [
        ("INFO", "job true false [*] app.large"),
        ("WARNING", "x y false two\\nlines\\n"),
        ("ERROR", "true b=c false"),
    ]
    left = outcome.parameters
    assert left.values == {
        "N": "new name *", "M": "ann@host", "l_hard": "a=7,b", "ac": "c=5", "jc": "app.large",
    }  # fmt: skip
    assert left.environment == {"FOO": "z", "A": "x y"}
    assert left.arguments == JOB.arguments


# What switches the log of each dialect on, in place of what; shells inherit it.
LOGGING = {
    "perl": ("jsv_main();", "$JSV::jsv_logging_enabled = 1;\njsv_main();"),
    "tcl": ("\njsv_main\n", "\nset jsv_logging_enabled true\njsv_main\n"),
    "python-functions": ("\njsv_main()", "\njsv_logging_enabled = True\njsv_main()"),
    "python-object": ("JSV()", "JSV(logging_enabled=True)"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_log_is_a_new_file_of_a_name_that_others_cannot_foretell(tmp_path, dialect):
    """A link of another account in its place would be followed, with the rights of who submits."""
    need(dialect)
    victim, pid = tmp_path / "victim", tmp_path / "pid"
    victim.write_text("")
    write_script(tmp_path / "script", DIALECTS[dialect]().replace(*LOGGING.get(dialect, ("", ""))))
    plant = f"echo $$ >{pid}; ln -s {victim} /tmp/jsv_$$.log; export jsv_logging_enabled=true; exec {tmp_path}/script"
    worker = ScriptWorker(
        write_script(tmp_path / "start", f"#!/bin/sh\n{plant}\n"), JsvContext.CLIENT, ScriptSettings()
    )
    try:
        assert worker.verify(WITH_CLASS).verdict is JsvVerdict.CORRECTED
    finally:
        worker.kill()
        there = sorted(Path("/tmp").glob(f"jsv_{pid.read_text().strip()}[._]*"))
        logs = [(one.stat().st_mode & 0o777, one.read_text()) for one in there if not one.is_symlink()]
        for one in there:
            one.unlink()
    ((mode, text),) = logs
    assert (victim.read_text(), mode) == ("", 0o600)
    assert "<<< PARAM N new name *" in text


def test_nothing_leaks_into_the_next_job(worker):
    worker.verify(WITH_CLASS)
    plain = replace(JOB, values={"N": "other", "l_hard": "a=1"}, environment={"FOO": "f", "TEXT": "t"})
    outcome = worker.verify(plain)
    assert texts(outcome) == [
        ("INFO", "other true false [*]"),
        ("WARNING", "f false t"),
        ("ERROR", "false 1 false"),
    ]
    assert outcome.parameters.values == {"N": "new name *", "l_hard": "a=7,b", "ac": "c=5"}


@pytest.mark.slow
def test_a_megabyte_passes_both_ways(worker):
    big = "x" * 1_000_000
    job = replace(WITH_CLASS, values={**WITH_CLASS.values, "l_hard": f"h_vmem=1,big={big}"})
    left = worker.verify(job).parameters
    assert left.values["l_hard"] == f"big={big},a=7,b"


def cpu_seconds(worker) -> float:
    """What the process of a worker has used."""
    return int(Path(f"/proc/{worker._process._process.pid}/schedstat").read_text().split()[0]) / 1e9


def large(size: int):
    """A job with that many arguments, variables, and parts of a list."""
    return replace(
        JOB, arguments=tuple(f"argument{number}" for number in range(size)),
        values={**JOB.values, "l_hard": ",".join(f"resource{number}={number}" for number in range(size))},
        environment={**JOB.environment, **{f"VARIABLE{number}": "x" for number in range(size)}},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["dash", "bash", "perl", "tcl", "python-functions"])
def test_the_time_grows_with_the_number_of_parameters_not_with_its_square(tmp_path, dialect):
    need(dialect)
    worker = ScriptWorker(write_script(tmp_path / "script", DIALECTS[dialect]()), JsvContext.CLIENT, PATIENT)
    try:
        least = {1_000: math.inf, 4_000: math.inf}  # what else runs on the machine only adds
        assert worker.verify(large(10)).message == "well done"
        for size in (*least, *least):
            before = cpu_seconds(worker)
            assert worker.verify(large(size)).message == "well done"
            least[size] = min(least[size], cpu_seconds(worker) - before)
        assert least[4_000] < 8 * least[1_000], least
    finally:
        worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["dash", "bash", "tcl"])
def test_nothing_of_many_parameters_leaks_into_the_next_job(tmp_path, monkeypatch, dialect):
    need(dialect)
    monkeypatch.setattr("lodesman.server.jsv.protocol._MAX_SAID", 10_000)
    shows = "jsv_show_params; jsv_show_envs; jsv_accept"
    text = (
        shell(shows, name=dialect)
        if dialect != "tcl"
        else TCL.partition("  set first")[0] + shows.replace(";", "\n") + "\n}\njsv_main\n"
    )
    worker = ScriptWorker(write_script(tmp_path / "script", text), JsvContext.CLIENT, PATIENT)
    try:
        first = [line.text for line in worker.verify(large(500)).log]
        wanted = [
            *(f"param CMDARG{n}=argument{n}" for n in range(500)),
            *(f"env VARIABLE{n}=x" for n in range(500)),
        ]
        assert [
            line
            for line in first
            if line.startswith(("param CMDARG", "env VARIABLE")) and "CMDARGS" not in line
        ] == wanted
        assert len(first) == len(set(first))
        second = [line.text for line in worker.verify(JOB).log]
        assert [line for line in second if "argument" in line or "VARIABLE" in line] == []
        assert "param CMDARG0=*" in second
    finally:
        worker.kill()


LISTED = "print(*(n for n in '{names}'.split() if callable(globals().get(n))))"
# Those that scripts call in Grid Engine's own libraries; callbacks of sh, Tcl and Python are the script's.
LISTS = {
    "dash": ("sh", ". {folder}/jsv_include.sh; for f in {names}; do command -v $f; done"),
    "bash": ("sh", ". {folder}/jsv_include.sh; for f in {names}; do command -v $f; done"),
    "perl": (
        "Perl",
        "use lib qw({folder}); use JSV qw(:ALL); for (qw({names})) {{ print qq($_\\n) if defined &$_ }}",
    ),
    "tcl": ("Tcl", "source {folder}/jsv_include.tcl\nforeach f {{{names}}} {{ puts [info commands $f] }}\n"),
    "python-functions": (
        "Python",
        "import sys; sys.dont_write_bytecode = True; sys.path.append('{folder}')\nfrom JSV import *\n"
        + LISTED,
    ),
}


@pytest.mark.parametrize("dialect", LISTS)
def test_every_function_is_there(dialect):
    need(dialect)
    library, text = LISTS[dialect]
    names = [name for name, _, libraries in table("jsv-functions.md") if library in libraries.split(", ")]
    assert len(names) >= 29
    folder = OWN_LIBRARIES / "util" / "resources" / "jsv"
    said = text.format(folder=folder, names=" ".join(names))
    options = {"tcl": [], "perl": ["-e", said]}.get(dialect, ["-c", said])
    program = PROGRAMS.get(dialect, dialect)
    done = subprocess.run(
        [program, *options], input=said, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == names


OWN_COMMANDS = {
    "dash": "jsv_script_log kept; jsv_send_command LOG INFO sent; jsv_send_error wrong",
    "perl": "jsv_script_log('kept'); jsv_send_command('LOG INFO', 'sent'); jsv_send_error('wrong');",
    "tcl": "jsv_script_log kept; jsv_send_command LOG INFO sent; jsv_send_error wrong",
    "python-functions": "jsv_script_log('kept'); jsv_send_command('LOG INFO sent'); jsv_send_error('wrong')",
}


@pytest.mark.parametrize("dialect", OWN_COMMANDS)
def test_a_script_may_send_a_line_of_its_own(tmp_path, dialect):
    need(dialect)
    text = DIALECTS[dialect]()
    start = text.index("jsv_log_info" if dialect != "perl" else "jsv_log_info(join")
    outcome = one(write_script(tmp_path / "s", f"{text[:start]}{OWN_COMMANDS[dialect]}\n  {text[start:]}"))
    assert (outcome.accepted, outcome.message) == (False, "wrong")
    assert ("INFO", "sent") in texts(outcome)


def test_a_script_without_a_result_says_so(tmp_path):
    found = one(write_script(tmp_path / "s", shell("true")))
    assert found.message == "jsv_on_verify gave no result"


def test_a_result_is_given_once(tmp_path):
    found = one(write_script(tmp_path / "s", shell("jsv_accept; jsv_log_info late; jsv_reject twice")))
    assert found.accepted


@pytest.mark.parametrize("name", ["dash", "bash"])
def test_the_shell_library_ends_at_the_end_of_its_input(tmp_path, name):
    need(name)
    url = write_script(tmp_path / "s", shell("jsv_accept", name=name))
    environment = {"SGE_ROOT": str(OWN_LIBRARIES)}
    done = subprocess.run(
        [url.path], input=b"START\nPARAM N x\n", env=environment, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"SEND ENV\nSTARTED\n", b"")


@pytest.mark.parametrize("name", ["dash", "bash"])
def test_the_shell_library_runs_no_command_and_expands_nothing(tmp_path, name):
    need(name)
    verify = 'jsv_sub_add_param ac x 1; jsv_sub_del_param ac x; jsv_show_params; jsv_show_envs; jsv_reject "$jsv_param_N"'
    url = write_script(tmp_path / "s", shell(verify, name=name, start="cd /"))
    text = Path(url.path).read_text().replace("jsv_main", "PATH=/nowhere\njsv_main")
    values = {"N": "* $(touch x) `id` \\t ${HOME} a  b", "ac": "*,b=*", "cwd": "'\""}
    found = one(write_script(tmp_path / "s", text), replace(JOB, values=values))
    assert found.message == "* $(touch x) `id` \\t ${HOME} a b"
    assert [line.text for line in found.log if " ac=" in line.text] == ["param ac=*,b=*"]
    assert ("INFO", "env FOO=x y") in texts(found)


def test_names_of_variables_are_never_code(tmp_path):
    library = f". {OWN_LIBRARIES}/util/resources/jsv/jsv_include.sh"
    said = "START\\nPARAM x;echo no y\\nENV ADD a;echo no b\\nENV ADD *\\nSHOW\\nQUIT\\n"
    text = f"jsv_on_start() {{ :; }}\n{library}\nprintf '{said}' | jsv_main"
    done = subprocess.run(
        ["sh", "-c", text], capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == ("STARTED\n", "")


def test_the_tree_has_what_stock_libraries_need():
    machine = os.uname().machine
    said = subprocess.run(
        [OWN_LIBRARIES / "util" / "arch"], capture_output=True, text=True, check=True
    ).stdout
    assert said == {"x86_64": "lx-amd64\n", "aarch64": "lx-arm64\n"}.get(machine, said)
    raw = OWN_LIBRARIES / "utilbin" / said.strip()
    if not raw.is_dir():
        pytest.skip(f"no folder for {said.strip()}")
    text = "  a\\b  *\n"
    assert said_by([raw / "read_raw"], text) == (0, text)
    assert said_by([raw / "read_raw"], "") == (1, "")
    assert said_by([raw / "echo_raw", "-n", "a\\b"], "") == (0, "-n a\\b\n")


def said_by(words, text):
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout


def test_the_files_are_text_of_our_own():
    files = [path for path in OWN_LIBRARIES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(files) == 9
    for path in files:
        assert not re.search(r"SISSL|Sun Microsystems", path.read_text())


# --- stock libraries ---

stock = pytest.mark.skipif(not STOCK.is_dir(), reason="gridengine-common is not installed")
EXAMPLE_JOB = replace(JOB, values={"N": "job", "l_hard": "h_data=1G,a=b", "ac": "b,c"})
STOCK_ROOT = str(STOCK.parents[2])


def corrected(script: Path, root: str = STOCK_ROOT):
    found = one(script_url(script), EXAMPLE_JOB, ScriptSettings(sge_root=root))
    assert (found.verdict, found.message) == (
        JsvVerdict.CORRECTED,
        "Job was modified before it was accepted",
    ), found
    assert found.parameters.values["l_hard"] == "a=b"
    return found


def script_url(path: Path) -> JsvUrl:
    return JsvUrl(path=str(path))


def stock_bash(tmp_path):
    corrected(STOCK / "jsv.sh")
    assert corrected(STOCK / "jsv.sh", str(OWN_LIBRARIES)).parameters.values["ac"] == "c,a=1"


def stock_dash(tmp_path):
    found = one(script_url(STOCK / "jsv_reject_all.sh"), settings=ScriptSettings(sge_root=STOCK_ROOT))
    assert found.verdict is JsvVerdict.REJECTED  # its reader fails
    found = one(script_url(STOCK / "jsv_reject_all.sh"))
    assert found.verdict is JsvVerdict.REJECTED_FOR_NOW


def stock_perl(tmp_path):
    assert {*corrected(STOCK / "jsv.pl").parameters.values["ac"].split(",")} == {"c", "a=1", "d=5"}
    assert corrected(STOCK / "jsv.pl", str(OWN_LIBRARIES)).parameters.values["ac"] == "c,a=1,d=5"


def stock_tcl(tmp_path):
    need("tcl")
    text = (STOCK / "jsv.tcl").read_text()
    assert "$c_a_value" in text
    path = tmp_path / "jsv.tcl"
    write_script(path, text.replace("$c_a_value", "$ac_a_value"))
    for root in (STOCK_ROOT, str(OWN_LIBRARIES)):
        found = one(script_url(path), EXAMPLE_JOB, ScriptSettings(sge_root=root))
        assert found.verdict is JsvVerdict.CORRECTED, found
        assert found.parameters.values["ac"] == "c,a=1"


def stock_python(tmp_path):
    found = one(script_url(STOCK / "jsv.py"), settings=ScriptSettings(sge_root=STOCK_ROOT))
    assert found.verdict is JsvVerdict.REJECTED


STOCK_ROWS = {
    "jsv_include.sh, bash": stock_bash,
    "jsv_include.sh (Debian 8.1.9), #!/bin/sh = dash": stock_dash,
    "JSV.pm / jsv.pl": stock_perl,
    "jsv_include.tcl": stock_tcl,
    "JSV.py / jsv.py (8.1.9)": stock_python,
}


@stock
@pytest.mark.parametrize("row", [row[0] for row in table("jsv-libraries.md")])
def test_rows_of_the_stock_libraries(row, tmp_path):
    STOCK_ROWS[row](tmp_path)


@pytest.mark.slow
@stock
def test_the_class_of_one_job_does_not_leak_with_the_stock_library(tmp_path):
    url = write_script(
        tmp_path / "s", shell('jsv_reject "$(jsv_is_param jc) $(jsv_get_param jc)."', name="bash")
    )
    worker = ScriptWorker(url, JsvContext.CLIENT, ScriptSettings(sge_root=STOCK_ROOT))
    try:
        found = [worker.verify(job).message for job in (WITH_CLASS, JOB, WITH_CLASS, JOB)]
    finally:
        worker.kill()
    assert found == ["true app.large.", "false .", "true app.large.", "false ."]
