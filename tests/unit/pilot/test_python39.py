"""What travels to worker nodes runs on Python 3.9: its grammar, its library calls, and the thing itself."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lodesman.server.engines.zipapp import build_zipapp, travelling_sources

SOURCES = {
    name: content.decode()
    for package in ("pilot", "advertise", "jobstatus")
    for name, content in travelling_sources(package).items()
}

# Younger than Python 3.9: modules, names out of modules, methods and keywords of calls.
NEW_MODULES = {"tomllib", "compression", "annotationlib", "concurrent.interpreters"}
NEW_NAMES = {
    "asyncio.TaskGroup",
    "asyncio.timeout",
    "contextlib.chdir",
    "dataclasses.KW_ONLY",
    "datetime.UTC",
    "enum.StrEnum",
    "hashlib.file_digest",
    "inspect.get_annotations",
    "itertools.batched",
    "itertools.pairwise",
    "os.process_cpu_count",
    "statistics.correlation",
    "sys.exception",
    "sys.orig_argv",
    "tarfile.data_filter",
    "threading.gettrace",
    "types.NoneType",
    "types.UnionType",
    "typing.Never",
    "typing.NotRequired",
    "typing.ParamSpec",
    "typing.Self",
    "typing.TypeAlias",
    "typing.TypeGuard",
    "typing.assert_never",
    "typing.override",
    "typing.reveal_type",
    "warnings.deprecated",
}
NEW_METHODS = {
    "add_note",
    "bit_count",
    "hardlink_to",
    "is_junction",
    "walk_up",
    "exception_group",
    "subgroup",
}
NEW_KEYWORDS = {
    "zip": {"strict"},
    "dataclass": {"slots", "kw_only", "weakref_slot", "match_args"},
    "glob": {"root_dir"},
    "iglob": {"root_dir"},
    "run": {"process_group"},
    "Popen": {"process_group"},
    "extract": {"filter"},
    "extractall": {"filter"},
    "TemporaryDirectory": {"delete", "ignore_cleanup_errors"},
    "Thread": {"context"},
    "field": {"kw_only"},
    "rmtree": {"onexc", "dir_fd"},
    "create_connection": {"all_errors"},
}


def name_of(node: ast.expr) -> str:
    """`a.b` for a plain attribute of a name, the name itself, or the last attribute."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else node.attr
    return ""


def young(tree: ast.Module) -> list[str]:
    """All uses of what Python 3.9 does not have, with their lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names if alias.name in NEW_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *[f"{node.module}.{alias.name}" for alias in node.names]]
            found += [(node.lineno, name) for name in names if name in NEW_NAMES | NEW_MODULES]
        elif isinstance(node, ast.Attribute):
            if name_of(node) in NEW_NAMES or node.attr in NEW_METHODS:
                found.append((node.lineno, name_of(node)))
        elif isinstance(node, ast.Call):
            function = name_of(node.func).rpartition(".")[2]
            keywords = {keyword.arg for keyword in node.keywords} & NEW_KEYWORDS.get(function, set())
            found += [(node.lineno, f"{function}({keyword}=)") for keyword in keywords]
    return [f"line {line}: {what}" for line, what in found]


def evaluated_unions(tree: ast.Module) -> list[int]:
    """Lines where `X | None` is evaluated, not only annotated: Python 3.10 and later can."""
    annotations: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parts.append(node.returns)
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            parts.append(node.annotation)
        annotations |= {id(inner) for part in parts if part is not None for inner in ast.walk(part)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and id(node) not in annotations
        and any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right))
    ]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_grammar(name):
    ast.parse(SOURCES[name], filename=name, feature_version=(3, 9))


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_younger_call(name):
    tree = ast.parse(SOURCES[name])
    assert young(tree) == []
    assert evaluated_unions(tree) == []


@pytest.mark.parametrize("name", [name for name in sorted(SOURCES) if "def " in SOURCES[name]])
def test_annotations_are_never_evaluated(name):
    assert "from __future__ import annotations" in SOURCES[name]


@pytest.mark.parametrize(
    "text",
    [
        "import tomllib",
        "from enum import StrEnum",
        "import itertools\nitertools.pairwise([])",
        "(5).bit_count()",
        "n = 5\nn.bit_count()",
        "zip([], [], strict=True)",
        "@dataclass(slots=True)\nclass A: ...",
        "@dataclasses.dataclass(frozen=True, kw_only=True)\nclass A: ...",
        "tar.extractall('.', filter='data')",
    ],
)
def test_the_list_finds_what_it_shall(text):
    assert young(ast.parse(text))


def test_evaluated_unions_are_found():
    assert evaluated_unions(ast.parse("X = int | None\ndef f(a: int | None) -> int | None: ...")) == [1]
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass", feature_version=(3, 9))


# --- on an old interpreter, if there is one -----------------------------------------------------------


def oldest_python() -> str:
    """The interpreter in LODESMAN_OLD_PYTHON, else a python3.9 on PATH that works, else this one."""
    for candidate in (os.environ.get("LODESMAN_OLD_PYTHON"), shutil.which("python3.9")):
        if candidate:
            done = subprocess.run([candidate, "-c", "print(1)"], capture_output=True, timeout=60, check=False)
            if done.returncode == 0:
                return candidate
    return sys.executable


@pytest.fixture(scope="module")
def python():
    return oldest_python()


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("old") / "pilot.pyz"
    build_zipapp(target)
    return target


@pytest.mark.slow
@pytest.mark.parametrize("package", ["pilot", "advertise", "jobstatus"])
def test_every_module_is_imported(python, tmp_path, package):
    """With every warning an error, and nothing but the standard library to be found."""
    build_zipapp(tmp_path / "program.pyz", package)
    modules = [
        name[:-3].replace("/", ".").replace(".__init__", "")
        for name in travelling_sources(package)
        if name.startswith("lodesman/")
    ]
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'program.pyz')!r})\nimport importlib\n"
    script += "".join(f"importlib.import_module({name!r})\n" for name in sorted(modules))
    script += "print(sys.version_info[:2])"
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


PAYLOAD = """
import json, os, sys, time, threading
from pathlib import Path
from lodesman.pilot.context import PilotContext
from lodesman.pilot.node import describe_node
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.context import PilotFile, PilotOptions
from lodesman.base import kernel
from lodesman.pilot.protocol import parse_claim
from lodesman.pilot.reaper import Reaper
here = Path(sys.argv[1])
log = lambda event, **facts: None
stamp = f"s{os.getpid()}"
assert kernel.set_attribute(kernel.CHILD_SUBREAPER, 1) and kernel.set_attribute(kernel.DUMPABLE, 0)
pilot = PilotContext(
    pilot_file=PilotFile((), "", stamp, PilotOptions()), node=describe_node(), directory=here,
    environment=dict(os.environ), log=log)
outbox = Outbox(pilot)
context = PayloadContext(pilot, Reaper(pilot.nursery), outbox, None)
spec = {"executable": "/bin/sh", "arguments": ["-c", "echo hello; (setsid sleep 60 &); exit 3"]}
(job,) = parse_claim({"jobs": [{"id": 1, "attempt": 1, "spec": spec, "limits": {"cpu_seconds": 5}}]}).jobs
PayloadRun(job, context).run(lambda _: None, lambda _: None)
sent = []
class Session:
    def client(self):
        return None
    def upload(self, client, path, file, sha256):
        pass
    def report(self, client, records):
        sent.extend(records)
        return {"results": [{"id": r["id"], "attempt": r["attempt"], "accepted": True} for r in records]}
threading.Thread(target=outbox.run_uploads, args=(Session(),)).start()
threading.Thread(target=outbox.run_reports, args=(Session(), lambda: None)).start()
outbox.wait_empty(60)
outbox.close()
print(json.dumps(sent))
"""


@pytest.mark.slow
def test_a_payload_runs(python, archive, tmp_path):
    script = f"import sys; sys.path.insert(0, {str(archive)!r})\n{PAYLOAD}"
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    end = json.loads(done.stdout)[-1]
    assert (end["state"], end["cause"], end["exit_code"], end["tail"]) == ("Failed", "exit", 3, "hello\n")
