"""Where a simulation's results go: per-lease files, a summary, pictures, a report.

With several policies each file of one policy carries its name: `leases-easy.csv`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure_core.errors import Invalid, Violation, WrongState
from tenure_sim.compare import Run

if TYPE_CHECKING:
    from tenure_sim.report import Subject


@dataclass(frozen=True, slots=True)
class Outputs:
    """Which files are wanted; None for those that are not."""

    csv: Path | None = None
    json: Path | None = None
    parquet: Path | None = None
    summary: Path | None = None
    pictures: Path | None = None
    report: Path | None = None
    png: bool = False

    @classmethod
    def all_in(cls, folder: Path, *, png: bool) -> Outputs:
        """Return everything but Parquet, in one folder."""
        return cls(
            folder / "leases.csv",
            folder / "leases.json",
            None,
            folder / "summary.json",
            folder / "pictures",
            folder / "report.html",
            png,
        )

    def check(self) -> None:
        """Raise WrongState when something that is wanted cannot be made on this machine."""
        if self.parquet is not None:
            _parquet()
        if self.png:
            from tenure_sim.pictures_png import renderer

            renderer()

    def write(self, runs: Sequence[Run], subject: Subject | None) -> list[Path]:
        """Write what is wanted and return the files, in the order in which they were written."""
        try:
            return self._write(runs, subject)
        except OSError as error:
            violation = Violation(str(error.filename), "CANNOT_WRITE", str(error.strerror))
            raise Invalid([violation], "CANNOT_WRITE") from None

    def _write(self, runs: Sequence[Run], subject: Subject | None) -> list[Path]:
        written: list[Path] = []
        for run in runs:
            if self.csv is not None:
                written.append(_own(self.csv, run, runs))
                with written[-1].open("w", encoding="utf-8", newline="") as out:
                    run.result.write_csv(out)
            if self.json is not None:
                written.append(_own(self.json, run, runs))
                with written[-1].open("w", encoding="utf-8") as out:
                    run.result.write_json(out)
            if self.parquet is not None:
                written.append(_own(self.parquet, run, runs))
                _write_parquet(run, written[-1])
        if self.summary is not None:
            self.write_summary(_summary(runs))
            written.append(self.summary)
        if subject is not None:
            written += self._draw(runs, subject)
        return written

    def write_summary(self, document: dict[str, Any]) -> None:
        """Write figures to where a summary is wanted. Raises OSError."""
        assert self.summary is not None
        _folder(self.summary)
        text = json.dumps(document, indent=2, sort_keys=True) + "\n"
        self.summary.write_text(text, encoding="utf-8")

    def _draw(self, runs: Sequence[Run], subject: Subject) -> list[Path]:
        from tenure_sim.report import page, pictures

        written: list[Path] = []
        drawn = pictures(runs, subject)
        if self.pictures is not None:
            self.pictures.mkdir(parents=True, exist_ok=True)
            for name, svg in drawn.items():
                written.append(self.pictures / f"{name}.svg")
                written[-1].write_text(svg, encoding="utf-8")
            if self.png:
                written += _render(written)
        if self.report is not None:
            _folder(self.report)
            self.report.write_text(page(runs, subject, drawn), encoding="utf-8")
            written.append(self.report)
        return written


def _render(pictures: Sequence[Path]) -> list[Path]:
    from tenure_sim.pictures_png import renderer

    render = renderer()
    images = [svg.with_suffix(".png") for svg in pictures]
    for svg, png in zip(pictures, images, strict=True):
        render(svg, png)
    return images


def _own(path: Path, run: Run, runs: Sequence[Run]) -> Path:
    """Return the file of one policy, in a folder that exists."""
    _folder(path)
    if len(runs) == 1:
        return path
    word = "".join(char if char.isalnum() else "-" for char in run.policy)
    return path.with_name(f"{path.stem}-{word}{path.suffix}")


def _folder(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)


def _summary(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "workload": runs[0].result.workload.name,
        "seed": runs[0].result.seed,
        "policies": {run.policy: run.summary.as_json() for run in runs},
        "bad_lines": [[bad.line, bad.reason] for bad in runs[0].result.workload.bad],
    }


def _parquet() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise WrongState(
            "PARQUET_NOT_INSTALLED",
            "Parquet needs the Python package pyarrow: pip install pyarrow, or write --csv",
        ) from None


def _write_parquet(run: Run, path: Path) -> None:
    arrow, parquet = _parquet()
    names = run.result.columns
    columns = list(zip(*run.result.rows(), strict=True)) or [()] * len(names)
    table = arrow.table({name: list(column) for name, column in zip(names, columns, strict=True)})
    parquet.write_table(table, str(path))
