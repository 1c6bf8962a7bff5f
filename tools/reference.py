"""Writes `docs/api/`, the reference of the contracts, from the comments in `protos/`, or checks it.

One page a package: its calls with what they take and return, then its messages and enums in the
order of the files. Every word is the contract's own; `buf lint` sees to it that nothing lacks one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2 as d

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
OUT = ROOT / "docs" / "api"
FOREIGN = {"tenure.etcd.v1"}
"""Packages whose contract is another project's."""
SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in d.FieldDescriptorProto.Type.items()
}
MESSAGE, SERVICE, METHOD, ENUM = 4, 6, 2, 5  # fields of FileDescriptorProto and what is in it
FIELD, NESTED, INNER_ENUM, VALUE = 2, 3, 4, 2

Comments = dict[tuple[int, ...], str]
"""What stands above each thing of a file, by its path in the file's descriptor."""


class Page:
    """The files of one package, and how to say what is in them."""

    def __init__(self, package: str, files: list[d.FileDescriptorProto]) -> None:
        self.package = package
        self.files = files

    def text(self) -> str:
        """Return the page."""
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines())).strip() + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# {self.package}\n"
        yield "<!-- generated from the contracts by `make gen` -->\n"
        for file in self.files:
            comments = _comments(file)
            for number, service in enumerate(file.service):
                yield from self._service(service, (SERVICE, number), comments)
        for file in self.files:
            comments = _comments(file)
            for number, message in enumerate(file.message_type):
                yield from self._message(message, "", (MESSAGE, number), comments)
            for number, enum in enumerate(file.enum_type):
                yield from self._enum(enum, "", (ENUM, number), comments)

    def _service(
        self,
        service: d.ServiceDescriptorProto,
        path: tuple[int, ...],
        said: Comments,
    ) -> Iterator[str]:
        yield f"## {service.name}\n\n{said.get(path, '')}\n"
        for number, method in enumerate(service.method):
            asked = ("stream " if method.client_streaming else "") + self._link(method.input_type)
            given = ("stream " if method.server_streaming else "") + self._link(method.output_type)
            yield f"### {method.name}\n\n{asked} → {given}\n"
            yield said.get((*path, METHOD, number), "") + "\n"

    def _message(
        self,
        message: d.DescriptorProto,
        outer: str,
        path: tuple[int, ...],
        said: Comments,
    ) -> Iterator[str]:
        if message.options.map_entry:
            return
        name = outer + message.name
        yield f"## {name}\n\n{said.get(path, '')}\n"
        entries = {
            f".{self.package}.{name}.{inner.name}": inner
            for inner in message.nested_type
            if inner.options.map_entry
        }
        if message.field:
            yield "| field | type | |\n|---|---|---|"
            for number, field in enumerate(message.field):
                words = said.get((*path, FIELD, number), "").replace("\n", " ").replace("|", "\\|")
                yield f"| `{field.name}` | {self._type(field, message, entries)} | {words} |"
            yield ""
        for number, inner in enumerate(message.nested_type):
            yield from self._message(inner, f"{name}.", (*path, NESTED, number), said)
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, f"{name}.", (*path, INNER_ENUM, number), said)

    def _enum(
        self,
        enum: d.EnumDescriptorProto,
        outer: str,
        path: tuple[int, ...],
        said: Comments,
    ) -> Iterator[str]:
        yield f"## {outer}{enum.name}\n\n{said.get(path, '')}\n"
        yield "| value | number | |\n|---|---|---|"
        for number, value in enumerate(enum.value):
            words = said.get((*path, VALUE, number), "").replace("\n", " ")
            yield f"| `{value.name}` | {value.number} | {words} |"
        yield ""

    def _type(
        self,
        field: d.FieldDescriptorProto,
        message: d.DescriptorProto,
        entries: dict[str, d.DescriptorProto],
    ) -> str:
        if field.type_name in entries:
            key, value = entries[field.type_name].field
            return f"map of {self._one(key)} to {self._one(value)}"
        text = self._one(field)
        if field.label == d.FieldDescriptorProto.LABEL_REPEATED:
            return f"repeated {text}"
        if field.proto3_optional:
            return f"optional {text}"
        if field.HasField("oneof_index"):
            return f"{text}, one of `{message.oneof_decl[field.oneof_index].name}`"
        return text

    def _one(self, field: d.FieldDescriptorProto) -> str:
        return self._link(field.type_name) if field.type_name else SCALARS[field.type]

    def _link(self, full_name: str) -> str:
        name = full_name.removeprefix(".")
        if not name.startswith("tenure."):
            return f"`{name}`"
        package, _, rest = re.fullmatch(r"(tenure\.\w+\.v\d+)(\.)(.*)", name).groups()  # type: ignore[union-attr]
        page = "" if package == self.package else f"{package.split('.')[1]}.md"
        return f"[{rest}]({page}#{rest.lower().replace('.', '')})"


def pages() -> dict[str, str]:
    """Return every page by its file name."""
    found: dict[str, list[d.FileDescriptorProto]] = {}
    for file in _described().file:
        if file.package.startswith("tenure.") and file.package not in FOREIGN:
            found.setdefault(file.package, []).append(file)
    made = {
        f"{package.split('.')[1]}.md": Page(package, files).text()
        for package, files in found.items()
    }
    made["README.md"] = _index(sorted(found))
    return made


def _index(packages: list[str]) -> str:
    lines = [f"* [{package}]({package.split('.')[1]}.md)" for package in packages]
    head = "# Reference of the contracts\n\n<!-- generated from the contracts by `make gen` -->\n\n"
    return head + "\n".join(lines) + "\n"


def _described() -> d.FileDescriptorSet:
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "image"
        files = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
        compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
        options = [f"--descriptor_set_out={image}", "--include_source_info"]
        subprocess.run([*compiler, *options, *files], check=True, cwd=ROOT)
        return d.FileDescriptorSet.FromString(image.read_bytes())


def _comments(file: d.FileDescriptorProto) -> Comments:
    return {
        tuple(place.path): re.sub(r"(?m)^ ", "", place.leading_comments).strip()
        for place in file.source_code_info.location
        if place.leading_comments
    }


def main() -> int:
    """Write the pages, or check them with `--verify`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verify", action="store_true", help="change nothing, fail when stale")
    only_verify = parser.parse_args().verify
    wanted = pages()
    present = {path.name: path.read_text(encoding="utf-8") for path in OUT.glob("*.md")}
    stale = sorted(name for name in wanted | present if wanted.get(name) != present.get(name))
    if not only_verify:
        OUT.mkdir(exist_ok=True)
        for name in stale:
            if name in wanted:
                (OUT / name).write_text(wanted[name], encoding="utf-8")
            else:
                (OUT / name).unlink()
        return 0
    for name in stale:
        print(f"stale: docs/api/{name} (make gen)")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
