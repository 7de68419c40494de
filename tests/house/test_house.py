"""The rules of the house that no other tool holds (docs/architecture.md).

Each test gathers every offender, so that one run names all faults.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 400
FUNCTION_LINES = 50
SHORT_FUNCTION_LINES = 25
SHORT_SHARE = 0.9
POSITIONAL_ARGUMENTS = 5

FORBIDDEN_WORDS = {"common", "handler", "helper", "manager", "util"}
FORBIDDEN_NAMES = FORBIDDEN_WORDS | {"type"}
PURE = {"languages", "decide"}
# Where waiting by the clock is the job (rule 3).
MAY_SLEEP = (
    "site/advertise/", "server/main", "examples/demo/", "site/jobstatus/applier", "pilot/", "user/cli/",
    "server/engines/keeper",
)  # fmt: skip
# What travels to worker nodes and sites.
STDLIB_ONLY = ("base/", "site/", "wire/client/", "pilot/", "server/engines/keeper")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(nodes: dict[str, list[ast.AST]]) -> Iterator[tuple[str, Function]]:
    """Every function with the name of its module."""
    return ((name, node) for name, found in nodes.items() for node in found if isinstance(node, Function))


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def imported_modules(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def test_modules_are_under_400_lines(root):
    folders = [root / name for name in ("src", "scripts", "bench", "examples")]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    sizes = {
        str(path.relative_to(root)): len(path.read_text(encoding="utf-8").splitlines()) for path in paths
    }
    assert {name: size for name, size in sizes.items() if size >= MODULE_LINES} == {}


def test_functions_are_under_50_lines(nodes):
    long = {
        f"{name}:{node.lineno} {node.name}": length(node)
        for name, node in functions(nodes)
        if length(node) >= FUNCTION_LINES
    }
    assert long == {}


def test_nine_of_ten_functions_are_under_25_lines(nodes):
    lengths = [length(node) for _, node in functions(nodes)]
    short = sum(1 for size in lengths if size < SHORT_FUNCTION_LINES)
    assert short >= SHORT_SHARE * len(lengths), f"{len(lengths) - short} of {len(lengths)} are longer"


def test_at_most_five_positional_arguments(nodes):
    crowded = {}
    for name, node in functions(nodes):
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > POSITIONAL_ARGUMENTS:
            crowded[f"{name}:{node.lineno} {node.name}"] = count
    assert crowded == {}


def is_tuple_of_facts(annotation: ast.expr | None) -> bool:
    text = "" if annotation is None else ast.unparse(annotation)
    return text.startswith("tuple[") and "..." not in text


def test_facts_are_not_packed_into_a_tuple_parameter(nodes):
    packed = [
        f"{name}:{node.lineno} {node.name}({argument.arg})"
        for name, node in functions(nodes)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if is_tuple_of_facts(argument.annotation)
    ]
    assert packed == []
    assert is_tuple_of_facts(ast.parse("x: tuple[int, str]").body[0].annotation)
    assert not is_tuple_of_facts(ast.parse("x: tuple[int, ...]").body[0].annotation)


def test_no_two_classes_have_one_name(nodes):
    ours = {name: found for name, found in nodes.items() if not name.startswith("examples/")}
    classes = [node.name for found in ours.values() for node in found if isinstance(node, ast.ClassDef)]
    # Users of the Python API know these.
    assert {name for name, count in Counter(classes).items() if count > 1} == {"Client", "Job", "Jobs"}


def is_empty_word(part: str) -> bool:
    words = {word.removesuffix("s") for word in part.split("_")}
    return part.removesuffix("s") in FORBIDDEN_NAMES or bool(words & FORBIDDEN_WORDS)


def test_no_module_is_named_for_nothing(sources):
    empty = {name for name in sources if any(map(is_empty_word, Path(name).with_suffix("").parts))}
    assert empty == set()
    assert is_empty_word("types")
    assert is_empty_word("job_helpers")
    assert not is_empty_word("pilot_type")


def test_every_module_and_package_says_what_it_is(package, sources):
    silent = [name for name, tree in sources.items() if not ast.get_docstring(tree)]
    assert silent == []
    folders = {(package / name).parent for name in sources if not name.startswith("examples/")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def names_in_all(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value)) if isinstance(node, ast.Assign) else None
    return None


def exported(tree: ast.Module) -> set[str]:
    """Public names that a package binds: its own definitions and what it takes from our modules."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("lodesman")):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_packages_declare_what_they_export_and_modules_do_not(sources):
    # That they are sorted is ruff's (RUF022).
    wrong = {}
    for name, tree in sources.items():
        declared = names_in_all(tree)
        if not name.endswith("__init__.py"):
            if declared is not None:
                wrong[name] = "only a package has __all__"
        elif declared is None and exported(tree):
            wrong[name] = f"no __all__ for {sorted(exported(tree))}"
        elif declared is not None and set(declared) != exported(tree):
            wrong[name] = f"differs by {sorted(set(declared) ^ exported(tree))}"
    assert wrong == {}


def test_test_files_have_unique_names_and_are_found(root):
    paths = [path for path in (root / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert [name for name, count in Counter(path.name for path in paths).items() if count > 1] == []
    assert [str(path) for path in (root / "tests").rglob("__init__.py")] == []
    apart = {"data", "kits"}
    lost = [str(path) for path in paths if not path.name.startswith("test_") and not apart & {*path.parts}]
    assert lost == []


def sleeps(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time" and any(alias.name == "sleep" for alias in node.names)
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"


def test_only_listed_modules_sleep(nodes):
    others = {name: found for name, found in nodes.items() if not name.startswith(MAY_SLEEP)}
    assert [name for name, found in others.items() if any(map(sleeps, found))] == []


# Where one command, request, answer or step must not end a loop that serves others, whatever it raises. Each logs it.
MAY_CATCH_ALL = {
    "server/http/claims.py", "server/live/commands.py", "server/http/dispatch.py", "server/main/exchange.py",
    "server/main/log_lines.py",
    "server/main/loops.py", "server/main/server.py", "base/errors.py",
    "server/loops/direct.py", "server/loops/launch.py", "server/loops/left_out.py", "server/store/journal.py",
    "server/store/sqlite.py", "server/store/sqlite_checkpoints.py",
    "server/http/read_side.py",  # lets go of it and raises it
    # What a user's function raises is raised where its result is asked for.
    "user/python/call_runner.py", "user/python/executor.py",
}  # fmt: skip


def test_only_loops_that_serve_others_catch_everything(nodes):
    broad = set()
    for name, found in nodes.items():
        for node in found:
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            words = {ast.unparse(item) if item else "everything" for item in caught}
            if words & {"everything", "Exception", "BaseException"}:
                broad.add(name)
    assert broad == MAY_CATCH_ALL


# Where a file or folder is put into its place by another name, and why it is whole there after a power cut.
RENAMES = {
    "base/durable.py": "synced before and after",
    "server/store/shelf.py": "synced before and after",
    "server/store/backup.py": "synced before and after",
    "server/store/incarnation.py": "synced before and after",
    "server/engines/pilot_directory.py": "its files are synced before; a folder that is gone was not submitted",
    "server/engines/keeper.py": "synced before and after",
    "user/access/outputs.py": "fetched again",
    "site/jobstatus/channel.py": "of a job that ends with the machine",
    "site/jobstatus/vacate_memory.py": "remembered again",
    "site/jobstatus/sites/door.py": "of a job that ends with the machine",
    "pilot/payload.py": "of a job that ends with the machine",
    "examples/demo/compose.py": "of a demo, which begins anew",
}


def puts_in_place(node: ast.AST) -> bool:
    """Whether it gives a file or folder another name. Two arguments of `replace` are those of a text, but for `os`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    words = 2 if ast.unparse(node.func.value) == "os" else 1
    is_replace = node.func.attr == "replace" and not node.keywords and len(node.args) == words
    return is_replace or node.func.attr in {"rename", "renames"}


def test_what_is_believed_later_is_on_the_disk(nodes):
    """A new one: `write_durably`, or say here why a power cut does no harm."""
    assert {name for name, found in nodes.items() if any(map(puts_in_place, found))} == set(RENAMES)


# Where a mode, an owner or a time is changed by a name, and why no other account can have put a link there: a server, a
# keeper and `lode vacate` may run as root.
CHANGED_BY_NAME = {
    "user/access/outputs.py": "what it has opened",
    "site/advertise/__main__.py": "what its caller has just written",
    "server/engines/isolation.py": "a folder of its own",
    "server/engines/keeper.py": "no links are followed",
    "server/engines/local.py": "in the data folder",
    "server/engines/pilot_directory.py": "in the data folder",
    "server/engines/pilot_processes.py": "in the data folder",
    "server/main/backends.py": "the data folder",
    "server/main/data_folder.py": "the data folder",
    "site/jobstatus/__main__.py": "what its caller has just written",
    "base/kernel.py": "what it has opened",
    "server/main/server_note.py": "a folder of its own",
    "pilot/context.py": "what it has opened",
    "pilot/launch.py": "of the account of the job itself",
    "pilot/trial.py": "a file of its own, in a folder of its own",
    "server/store/sqlite.py": "in the data folder",
}


def test_no_link_leads_a_change_of_a_file_elsewhere(nodes):
    """A new one: `os.fchmod` of what is open, or say here whose folder it is in."""
    changes = {
        "chmod",
        "chown",
        "lchown",
        "utime",
        "copymode",
        "copystat",
        "copy",
        "copy2",
        "copytree",
        "move",
    }
    found = {
        name
        for name, all_of in nodes.items()
        for node in all_of
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in changes
        if node.func.attr not in {"copy", "move"} or ast.unparse(node.func.value) == "shutil"
    }
    assert {name for name in found if not name.startswith("examples/")} == set(CHANGED_BY_NAME)


# Fixed names in /tmp, which any account can put there before; all others are made with random letters.
FIXED_IN_TMP = {
    "src/lodesman/server/engines/isolation.py": "hidden from pilots",
    "src/lodesman/server/engines/job_script.py": "with random letters",
    "src/lodesman/pilot/enclosure.py": "with random letters",
    "src/lodesman/server/store/postgresql_connection.py": "where PostgreSQL listens, which says who it is",
    "src/lodesman/server/jsv/lib/util/resources/jsv/JSV.pm": "with random letters",
    "src/lodesman/server/jsv/lib/util/resources/jsv/JSV.py": "with random letters",
    "src/lodesman/server/jsv/lib/util/resources/jsv/jsv_include.sh": "with random letters",
    "src/lodesman/server/jsv/lib/util/resources/jsv/jsv_include.tcl": "with random letters",
}


def test_nothing_that_is_shipped_has_a_fixed_name_in_tmp(root):
    places = [
        root / "demo",
        *(path for name in ("src", "examples", "contrib") for path in (root / name).rglob("*")),
    ]
    named = re.compile(rb"(?<![\w}])/tmp\b")
    found = {
        str(path.relative_to(root))
        for path in places
        if path.is_file() and path.suffix != ".pyc" and named.search(path.read_bytes())
    }
    assert found == set(FIXED_IN_TMP)


# Runs code that it has made of its own words alone (`test_the_code_has_no_text_of_an_ad`).
MAY_EVALUATE = "languages/classad/fast.py"


def test_languages_and_decisions_touch_nothing(nodes):
    impure = [
        f"{name}:{node.lineno} {node.func.id}"
        for name, found in nodes.items()
        if Path(name).parts[0] in PURE
        for node in found
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in {"open", "print", "input", "exec", *([] if name == MAY_EVALUATE else ["eval"])}
    ]
    assert impure == []


def test_the_purity_contract_covers_every_language_and_decision(root):
    config = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {item["name"]: item for item in config["tool"]["importlinter"]["contracts"]}
    covered = set(contracts["Languages and decisions are pure"]["source_modules"])
    assert covered >= {f"lodesman.{room}" for room in PURE}


def test_what_travels_needs_only_the_standard_library(nodes):
    foreign = {
        f"{name}: {module}"
        for name, found in nodes.items()
        if name.startswith(STDLIB_ONLY)
        for module in imported_modules(found)
        if module.split(".")[0] not in sys.stdlib_module_names | {"lodesman"}
    }
    assert foreign == set()


SQL = re.compile(r"SELECT\b.+\bFROM |INSERT INTO |UPDATE \w+ SET |DELETE FROM |PRAGMA \w", re.DOTALL)


def says_sql(node: ast.AST) -> bool:
    """A statement as a text, or a call that runs one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in {"execute", "executemany"}
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(SQL.match(node.value))


def test_sql_stands_in_the_store_alone(nodes):
    found = {
        name
        for name, found in nodes.items()
        if not name.startswith("server/store/") and any(map(says_sql, found))
    }
    assert found == set()
    assert says_sql(ast.parse("db.execute(x)").body[0].value)
    assert says_sql(ast.parse("'SELECT a\\nFROM b'").body[0].value)
