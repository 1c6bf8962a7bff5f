"""What the services of a suite measure, recorded, and what Prometheus's rules say of it.

A recording is a list of scrapes, each taken to be a minute after the one before: a rule that waits
for minutes is judged by a run of seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

RULES: Final = Path(__file__).parents[2] / "helm" / "tenure" / "rules" / "tenure.yaml"
RECORDINGS: Final = Path(__file__).with_name("recordings")
SAMPLE: Final = re.compile(r"^(tenure_[a-z_]+)(?:\{(.*)\})? (\S+)$")
Scrape = dict[str, str]


def promtool() -> str:
    """Return the program; skip without it, but where nothing may be skipped."""
    found = shutil.which("promtool")
    if found is None and not os.environ.get("TENURE_NO_SKIPS"):
        pytest.skip("needs promtool (Debian: apt-get install prometheus)")
    assert found is not None, "promtool is missing"
    return found


class Recording:
    """Scrapes of all services, one a minute."""

    def __init__(self, folder: Path | None = None) -> None:
        self.scrapes: list[Scrape] = []
        self._targets: dict[str, str] = {}
        if folder is not None:
            for each in json.loads((folder / "metrics.json").read_text()):
                self._targets[each["labels"]["service"]] = each["targets"][0]

    def take(self, minutes: int = 1) -> Scrape:
        """Scrape once, and take it as what was so for minutes."""
        scrape: Scrape = {}
        for service, target in self._targets.items():
            place = f'instance="{target}",job="tenure",service="{service}"'
            body = _fetch(target)
            scrape[f"up{{{place}}}"] = "0" if body is None else "1"
            for line in (body or "").splitlines():
                if (found := SAMPLE.match(line)) is not None:
                    name, labels, value = found.groups()
                    scrape[f"{name}{{{place}{',' if labels else ''}{labels or ''}}}"] = value
        self.scrapes += [scrape] * minutes
        return scrape

    def until(self, holds: Callable[[Scrape], bool], within_s: float, what: str) -> None:
        """Scrape until it shows what is waited for; only the last is kept."""
        deadline = time.monotonic() + within_s
        while not holds(self.take()):
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
            self.scrapes.pop()
            time.sleep(0.1)

    def firing(self, among: str = ".*") -> set[str]:
        """Return the alerts that fire after the last scrape, as promtool evaluates the rules."""
        last = f"{len(self.scrapes) - 1}m"
        asked = f'group by (alertname) (ALERTS{{alertstate="firing",alertname=~"{among}"}})'
        series = sorted({name for scrape in self.scrapes for name in scrape})
        test = {
            "rule_files": [str(RULES)],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": s, "values": self._values(s)} for s in series],
                    "promql_expr_test": [{"expr": asked, "eval_time": last, "exp_samples": []}],
                }
            ],
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "test.yaml")
            file.write_text(json.dumps(test))  # JSON is YAML
            done = subprocess.run(
                [promtool(), "test", "rules", str(file)], capture_output=True, text=True
            )
        said = done.stdout + done.stderr
        assert done.returncode == 0 or "got:" in said, said
        return set(re.findall(r'alertname=\\?"(\w+)', said.partition("got:")[2]))

    def _values(self, series: str) -> str:
        return " ".join(scrape.get(series, "_") for scrape in self.scrapes)

    def keep(self, name: str) -> None:
        """Write it down without what no rule reads, where $TENURE_RECORDINGS says so."""
        folder = os.environ.get("TENURE_RECORDINGS")
        if not folder:
            return
        wanted = {"up", *re.findall(r"tenure_\w+", RULES.read_text())}
        series = sorted({name for scrape in self.scrapes for name in scrape})
        kept = {each: self._values(each) for each in series if each.partition("{")[0] in wanted}
        # A histogram in which nothing happened says nothing: rates of it are 0.
        kept = {
            each: values
            for each, values in kept.items()
            if "_bucket{" not in each or len(set(values.split())) > 1
        }
        Path(folder, f"{name}.json").write_text(json.dumps(kept, indent=0) + "\n")

    @classmethod
    def load(cls, name: str) -> Recording:
        """Return a recording that was written down."""
        kept = json.loads((RECORDINGS / f"{name}.json").read_text())
        recording = cls()
        for series, values in kept.items():
            for number, value in enumerate(values.split()):
                if number == len(recording.scrapes):
                    recording.scrapes.append({})
                if value != "_":
                    recording.scrapes[number][series] = value
        return recording


def samples(scrape: Scrape, name: str, **labels: Any) -> list[float]:
    """Return the values of a metric whose labels are these."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return [
        float(value)
        for series, value in scrape.items()
        if series.startswith(name + "{") and all(each in series for each in wanted)
    ]


def _fetch(target: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=1.5) as answer:
            return str(answer.read().decode())
    except (OSError, urllib.error.URLError, TimeoutError):
        return None
