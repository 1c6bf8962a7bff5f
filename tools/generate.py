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


def differing(fresh: Path) -> list[Path]:
    """Return the generated files that are not as `fresh` has them, relative to both bases."""
    wanted, present = set(generated(fresh)), set(generated(OUT))
    return sorted(
        path
        for path in wanted | present
        if path not in present
        or path not in wanted
        or not filecmp.cmp(fresh / path, OUT / path, shallow=False)
    )


def install(fresh: Path, changed: list[Path]) -> None:
    """Put the changed files in place one by one: whoever runs meanwhile misses none."""
    for path in changed:
        if (fresh / path).exists():
            (OUT / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / path, OUT / path)
            (OUT / path.parents[1] / "__init__.py").touch()
        else:
            (OUT / path).unlink()


def main() -> int:
    """Generate, or verify with `--verify`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true", help="change nothing, fail when stale")
    only_verify = parser.parse_args().verify
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        changed = differing(fresh)
        if not only_verify:
            install(fresh, changed)
    if only_verify and changed:
        stale = ", ".join(map(str, changed))
        sys.stderr.write(f"generated code is not current, run `make gen`: {stale}\n")
    return 1 if only_verify and changed else 0


if __name__ == "__main__":
    sys.exit(main())
