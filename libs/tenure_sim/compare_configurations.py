"""Reads the ancestor's configuration files (INI), also those that stand for many runs at once.

A file with a `[multi]` section lists traces, injections and annotations; `[common:SECTION]` holds
for all and `[PROFILE:SECTION]` for one profile: each profile runs with each trace, with and without
each annotation and each injection. Options that have no meaning here (accounting, clocks, log
files) are passed over; those that would change the outcome and are not simulated are named in the
configuration's `ignored`, so that nobody takes the result for what it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from tenure_core.errors import Invalid, Violation

Sections = Mapping[str, Mapping[str, str]]

_OUTCOME: Final[Mapping[str, Mapping[str, str]]] = {
    "general": {"lease-preparation": "unmanaged"},
    "scheduling": {
        "mapper": "greedy",
        "suspension": "all",
        "enactment-overhead": "0",
        "scheduling-threshold-factor": "1",
        "suspendresume-exclusion": "local",
    },
    "simulation": {"stop-when": "all-leases-done"},
    "tracefile": {"override-memory": "-1"},
}
"""Options that decide about the outcome, with the one value that is simulated."""

_ALSO_FINE: Final = {("scheduling", "suspension"): ("none",)}


@dataclass(frozen=True, slots=True)
class Configuration:
    """One run: its name, its files, and its options by section."""

    name: str
    trace: Path
    injection: Path | None
    annotation: Path | None
    sections: Sections

    def option(self, section: str, name: str, default: str = "") -> str:
        """Return an option as it is written, the default where it is not."""
        return self.sections.get(section, {}).get(name, default).strip()

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the options that would change the outcome and are not simulated."""
        return tuple(
            f"{section}.{name}={value}"
            for section, options in _OUTCOME.items()
            for name, simulated in options.items()
            if (value := self.option(section, name, simulated)).lower() != simulated
            and value not in _ALSO_FINE.get((section, name), ())
        )


def read_configurations(path: Path, text: str) -> list[Configuration]:
    """Return the runs that a file describes, in its order; paths in it are seen from its folder.

    Raises Invalid for what is no configuration, or names no trace.
    """
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except ConfigError as error:
        raise wrong(path.name, str(error).splitlines()[0]) from None
    sections = {name: dict(parser[name]) for name in parser.sections()}
    folder = path.parent
    if "multi" in sections:
        return list(_multiplied(path.name, folder, sections))
    files = sections.get("tracefile", {})
    trace = files.get("tracefile", "").strip()
    if not trace:
        raise wrong(path.name, "[tracefile] tracefile is not given")
    return [
        Configuration(
            path.name.split(".")[0],
            folder / trace,
            _named(folder, files.get("injectionfile", "")),
            _named(folder, files.get("annotationfile", "")),
            sections,
        )
    ]


def wrong(field: str, description: str) -> Invalid:
    """Return the error for a configuration that cannot be used."""
    return Invalid([Violation(field, "BAD_OPTION", description)], "BAD_CONFIGURATION")


def _multiplied(name: str, folder: Path, sections: Sections) -> Iterator[Configuration]:
    multi = sections["multi"]
    traces = _listed(folder, multi, "trace")
    if not traces:
        raise wrong(name, "[multi] tracefiles is not given")
    annotations = _or_none(_listed(folder, multi, "annotation"), multi, "skip-no-annotation")
    injections = _or_none(_listed(folder, multi, "injection"), multi, "skip-no-injection")
    for profile, own in _profiles(name, sections).items():
        for trace, annotation, injection in product(traces, annotations, injections):
            parts = [f"{profile}_{_stem(trace)}"]
            parts += [_stem(each) for each in (injection, annotation) if each is not None]
            yield Configuration("+".join(parts), trace, injection, annotation, own)


def _profiles(name: str, sections: Sections) -> dict[str, Sections]:
    """Return the options of each profile: its own before the common ones."""
    common: dict[str, dict[str, str]] = {}
    own: dict[str, dict[str, dict[str, str]]] = {}
    for title, options in sections.items():
        profile, colon, section = title.partition(":")
        if not colon:
            continue
        if profile == "common":
            common[section] = dict(options)
        else:
            own.setdefault(profile, {})[section] = dict(options)
    if not own:
        raise wrong(name, "there is no profile: no section [PROFILE:SECTION]")
    return {
        profile: {
            section: {**common.get(section, {}), **mine.get(section, {})}
            for section in sorted({*common, *mine})
        }
        for profile, mine in own.items()
    }


def _listed(folder: Path, multi: Mapping[str, str], kind: str) -> list[Path]:
    inside = folder / multi.get(f"{kind}dir", "").strip()
    names = multi.get(f"{kind}files", "").replace(",", " ").split()
    return [inside / name for name in names]


def _or_none(files: Sequence[Path], multi: Mapping[str, str], option: str) -> Sequence[Path | None]:
    skips = multi.get(option, "false").strip().lower() in ("true", "yes", "1")
    return files if files and skips else [None, *files]


def _named(folder: Path, name: str) -> Path | None:
    return folder / name.strip() if name.strip() else None


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
