"""Write requirements/*.txt: exact versions with the hashes of every published file, no address.

`python3 scripts/lock.py` keeps the locked versions and adds what pyproject.toml newly needs;
`python3 scripts/lock.py --upgrade` takes the newest versions that pyproject.toml allows.
The resolver (uv) is installed for the run into a temporary virtual environment (ADR 0001).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLVER = "uv==0.13.8"
HEADER = "# Written by scripts/lock.py from pyproject.toml; do not edit. Install with pip --require-hashes.\n"


def main() -> int:
    """Resolve for every platform and Python that pyproject.toml admits; write both locks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions allowed")
    upgrade = parser.parse_args().upgrade
    with tempfile.TemporaryDirectory() as scratch:
        python = _resolver_environment(Path(scratch))
        runtime = ROOT / "requirements" / "runtime.txt"
        _lock(python, output=runtime, options=_options(upgrade=upgrade))
        # The developer's set contains the runtime set at the same versions.
        dev_options = [*_options(upgrade=upgrade), "--extra", "dev", "--constraint", str(runtime)]
        dev_options += ["--extra", "postgres"]
        dev = ROOT / "requirements" / "dev.txt"
        _lock(python, output=dev, options=dev_options)
        # What is installed beside the runtime set, at the versions that are tested here.
        for extra, needs in sorted(_extras().items()):
            options = [*_options(upgrade=upgrade), "--constraint", str(dev)]
            _lock(python, output=ROOT / "requirements" / f"{extra}.txt", options=options, needs=needs)
    return 0


def _extras() -> dict[str, list[str]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras: dict[str, list[str]] = tomllib.load(file)["project"]["optional-dependencies"]
    return {name: needs for name, needs in extras.items() if name != "dev"}


def _resolver_environment(scratch: Path) -> Path:
    venv.create(scratch / "venv", with_pip=True)
    python = scratch / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", RESOLVER], check=True, timeout=600)
    return python


def _options(*, upgrade: bool) -> list[str]:
    options = ["--universal", "--python-version", "3.11", "--generate-hashes"]
    options += ["--no-emit-index-url", "--no-annotate", "--no-header", "--quiet"]
    return [*options, "--upgrade"] if upgrade else options


def _lock(python: Path, *, output: Path, options: list[str], needs: list[str] | None = None) -> None:
    """Of pyproject.toml or, if they are given, of these needs."""
    source, text = ("pyproject.toml", None) if needs is None else ("-", "\n".join(needs).encode())
    command = [str(python), "-m", "uv", "pip", "compile", source, "--output-file", str(output), *options]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600, stdout=subprocess.DEVNULL, input=text)
    output.write_text(HEADER + output.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
