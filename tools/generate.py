"""Generates the Python stubs below `libs/tenure` from `protos/`, or verifies that they are current.

The proto folder *is* the Python path, so no import needs rewriting. Messages are generated for all
files, services only for files that define one.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
OUT = ROOT / "libs"


def generate(target: Path) -> None:
    """Write all stubs below `target`."""
    files = sorted(path.relative_to(PROTOS) for path in PROTOS.rglob("*.proto"))
    services = [path for path in files if "\nservice " in (PROTOS / path).read_text()]
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
    bin_folder = Path(sys.executable).parent
    plugin = f"--plugin=protoc-gen-mypy={bin_folder / 'protoc-gen-mypy'}"
    plugin_grpc = f"--plugin=protoc-gen-mypy_grpc={bin_folder / 'protoc-gen-mypy_grpc'}"
    messages = [plugin, f"--python_out={target}", f"--mypy_out={target}"]
    stubs = [plugin_grpc, f"--grpc_python_out={target}", f"--mypy_grpc_out={target}"]
    for options, which in ((messages, files), (stubs, services)):
        subprocess.run([*compiler, *options, *map(str, which)], check=True, cwd=ROOT)
    for folder in {target / path.parent for path in files}:
        (folder / "__init__.py").touch()
        (folder.parent / "__init__.py").touch()


def generated(base: Path) -> list[Path]:
    """Return every generated file below `base`, relative to it."""
    return sorted(
        path.relative_to(base)
        for path in base.glob("tenure/*/v1/*")
        if path.suffix in (".py", ".pyi")
    )


def verify() -> int:
    """Return 0 when the committed stubs are what `protos/` says, else 1 with the names."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        wanted, present = generated(fresh), generated(OUT)
        stale = [
            str(path)
            for path in sorted(set(wanted) | set(present))
            if path not in present
            or path not in wanted
            or not filecmp.cmp(fresh / path, OUT / path, shallow=False)
        ]
    if stale:
        sys.stderr.write(f"generated code is not current, run `make gen`: {', '.join(stale)}\n")
    return 1 if stale else 0


def main() -> int:
    """Generate, or verify with `--verify`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true", help="change nothing, fail when stale")
    if parser.parse_args().verify:
        return verify()
    for folder in OUT.glob("tenure/*/v1"):
        shutil.rmtree(folder)
    generate(OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
