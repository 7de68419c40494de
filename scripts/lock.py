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
        _lock(python, output=ROOT / "requirements" / "dev.txt", options=dev_options)
    return 0


def _resolver_environment(scratch: Path) -> Path:
    venv.create(scratch / "venv", with_pip=True)
    python = scratch / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", RESOLVER], check=True, timeout=600)
    return python


def _options(*, upgrade: bool) -> list[str]:
    options = ["--universal", "--python-version", "3.11", "--generate-hashes"]
    options += ["--no-emit-index-url", "--no-annotate", "--no-header", "--quiet"]
    return [*options, "--upgrade"] if upgrade else options


def _lock(python: Path, *, output: Path, options: list[str]) -> None:
    command = [str(python), "-m", "uv", "pip", "compile", "pyproject.toml", "--output-file", str(output)]
    subprocess.run([*command, *options], cwd=ROOT, check=True, timeout=600, stdout=subprocess.DEVNULL)
    output.write_text(HEADER + output.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
