"""`make polyglot`: the conformance story, told by a client of each language, against a real suite.

Stubs come from our protos with local plugins, into build/polyglot; the plugins and libraries are
pinned by each language's own lock file and come from its registry at the first run (of C++, from
the machine's packages). Says honestly what ran: a language whose tools are not on this machine is
not counted as passed. Exit code 1 when a client tells another story than examples/story.tsv.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import google.rpc
from tests.support.suite import running_suite

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
BUILD = ROOT / "build" / "polyglot"
BUF = Path(sys.executable).with_name("buf")
# The details of errors are Google's own contract; its Python package brings the protos.
GOOGLE = Path(next(iter(google.rpc.__path__))).parents[1]


def run(*command: str | Path, cwd: Path, **variables: str) -> None:
    environment = {**os.environ, **variables}
    arguments = [str(part) for part in command]
    subprocess.run(arguments, cwd=cwd, env=environment, check=True, timeout=1_200)


def python() -> list[str]:
    return [sys.executable, str(EXAMPLES / "python" / "story.py")]


def go() -> list[str]:
    stubs = BUILD / "go"
    stubs.mkdir(parents=True, exist_ok=True)
    # The first run compiles the plugins, which takes minutes on a small machine.
    run(BUF, "generate", ROOT, "--template", "buf.gen.yaml", cwd=EXAMPLES / "go")
    (stubs / "go.mod").write_text("module tenure.example/stubs\n\ngo 1.26.0\n", encoding="utf-8")
    run("go", "build", "-o", BUILD / "go-story", ".", cwd=EXAMPLES / "go")
    return [str(BUILD / "go-story")]


def typescript() -> list[str]:
    folder = BUILD / "typescript"
    shutil.copytree(EXAMPLES / "typescript", folder, dirs_exist_ok=True)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", cwd=folder)
    (folder / "stubs").mkdir(exist_ok=True)
    run(BUF, "generate", ROOT, "--template", "buf.gen.yaml", cwd=folder)
    protoc = (sys.executable, "-m", "grpc_tools.protoc", "-I", GOOGLE)
    plugin = "--plugin=protoc-gen-es=node_modules/.bin/protoc-gen-es"
    options = ("--es_out=stubs", "--es_opt=target=ts,import_extension=js")
    run(*protoc, plugin, *options, "google/rpc/error_details.proto", cwd=folder)
    run("node_modules/.bin/tsc", "-p", ".", cwd=folder)
    bundle = ("--bundle", "--platform=node", "--format=esm", "--outfile=story.mjs")
    run("node_modules/.bin/esbuild", "story.ts", *bundle, "--log-level=warning", cwd=folder)
    return ["node", str(folder / "story.mjs")]


def java() -> list[str]:
    # Maven brings protoc and its plugin; -C refuses what does not match its registry's checksum.
    run("mvn", "--quiet", "--batch-mode", "-C", "process-classes", cwd=EXAMPLES / "java")
    libraries = (BUILD / "java" / "classpath").read_text(encoding="utf-8")
    return ["java", "-cp", f"{BUILD / 'java' / 'classes'}{os.pathsep}{libraries}", "Story"]


def rust() -> list[str]:
    folder = BUILD / "rust"
    folder.mkdir(parents=True, exist_ok=True)
    protos = folder / "tenure.binpb"
    run(BUF, "build", ROOT, "--as-file-descriptor-set", "-o", protos, cwd=ROOT)
    cargo = ("cargo", "build", "--quiet", "--target-dir", folder)
    run(*cargo, cwd=EXAMPLES / "rust", TENURE_DESCRIPTORS=str(protos))
    return [str(folder / "debug" / "rust-story")]


def cpp() -> list[str]:
    stubs = BUILD / "cpp"
    stubs.mkdir(parents=True, exist_ok=True)
    run(BUF, "generate", ROOT, "--template", "buf.gen.yaml", cwd=EXAMPLES / "cpp")
    # This protoc is of the version of the libraries; that of grpcio-tools is newer.
    details = (f"--cpp_out={stubs}", "google/rpc/error_details.proto", "google/rpc/status.proto")
    run("protoc", "-I", GOOGLE, *details, cwd=EXAMPLES / "cpp")
    run("make", "--silent", cwd=EXAMPLES / "cpp")
    return [str(stubs / "cpp-story")]


@dataclass(frozen=True)
class Language:
    """How a language's client is built, and the programs and C++ libraries that it takes."""

    name: str
    build: Callable[[], list[str]]
    programs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return what this machine lacks of it; a library counts only when its tools are there."""
        lacking = [program for program in self.programs if shutil.which(program) is None]
        return lacking or [name for name in self.libraries if not has_library(name)]


def has_library(name: str) -> bool:
    return subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0


LANGUAGES = (
    Language("python", python),
    Language("go", go, ("go",)),
    Language("typescript", typescript, ("node", "npm")),
    Language("java", java, ("java", "javac", "mvn")),
    Language("rust", rust, ("cargo", "cc")),
    Language(
        "c++",
        cpp,
        ("g++", "make", "pkg-config", "protoc", "grpc_cpp_plugin"),
        ("grpc++", "protobuf"),
    ),
)


async def tell(command: list[str], environment: dict[str, str]) -> str:
    """Return the story that a client tells, or why it could not."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(180):
        told, complaint = await process.communicate()
    return told.decode() if process.returncode == 0 else told.decode() + complaint.decode()


async def outcome_of(language: Language, suite_environment: dict[str, str], story: str) -> str:
    """Return `passed`, or why not."""
    if missing := language.missing():
        return f"not run: {' and '.join(missing)} not found"
    try:
        command = await asyncio.to_thread(language.build)
    except (subprocess.SubprocessError, OSError) as error:
        return f"FAILED to build: {error}"
    environment = {**os.environ, **suite_environment, "STORY_RUN": f"r{uuid.uuid4().hex[:12]}"}
    told = await tell(command, environment)
    return "passed" if told == story else f"FAILED, it told:\n{told}"


async def main(names: list[str]) -> int:
    """Tell the story in the languages named, or in all; return the exit code."""
    story = (EXAMPLES / "story.tsv").read_text(encoding="utf-8").partition("\n")[2]
    failed = 0
    async with running_suite(agents=2) as running:
        environment = running.environment()
        for language in LANGUAGES:
            if names and language.name not in names:
                continue
            outcome = await outcome_of(language, environment, story)
            print(f"{language.name:11} {outcome}", flush=True)
            failed += outcome.startswith("FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
