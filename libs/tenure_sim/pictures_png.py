"""Turns SVG into PNG with whatever the machine has for it; nothing of ours does.

First `rsvg-convert` (Debian: librsvg2-bin), then the Python package `cairosvg`.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tenure_core.errors import WrongState

Render = Callable[[Path, Path], None]


def renderer() -> Render:
    """Return what turns one file into the other. Raises WrongState when there is nothing."""
    program = shutil.which("rsvg-convert")
    if program is not None:
        found = program

        def render(svg: Path, png: Path) -> None:
            subprocess.run([found, "-o", str(png), str(svg)], check=True, timeout=120)  # noqa: S603

        return render
    try:
        cairosvg = importlib.import_module("cairosvg")
    except ImportError:
        raise WrongState(
            "NO_PNG_RENDERER",
            "PNG needs the program rsvg-convert (Debian: librsvg2-bin) or the Python package "
            "cairosvg; the pictures are there as SVG",
        ) from None

    def render_by_package(svg: Path, png: Path) -> None:
        cairosvg.svg2png(url=str(svg), write_to=str(png))

    return render_by_package
