"""`tenure simulate` writes what is asked for, the same each time, and says what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tenure_cli.__main__ import cli
from tenure_cli.failures import guarded
from tenure_sim.lublin import LublinModel, write_swf


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.swf"
    with path.open("w") as out:
        write_swf(LublinModel(jobs=120, processors=32, seed=5, load=1.2), out)
    return path


def tenure(*arguments: object) -> int:
    words = ["simulate", *map(str, arguments)]
    return guarded(lambda: cli.main(words, standalone_mode=False))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--compare", "off,easy,conservative"],
        ["--nodes", "16", "--cpu", "2", "--ordering", "shortest", "--seed", "3"],
    ],
    ids=["one", "compared", "bound"],
)
def test_the_same_run_writes_the_same_bytes(trace: Path, tmp_path: Path, more: list[str]):
    """Twice in processes of their own, with other hash seeds: every file alike."""
    written = []
    for number in (1, 2):
        out = tmp_path / str(number)
        subprocess.run(
            [sys.executable, "-m", "tenure_cli", "simulate", trace, *more, "--out", out, "-q"],
            check=True,
            env={"PYTHONHASHSEED": str(number), "PATH": ""},
            cwd=Path(__file__).resolve().parents[3] / "services",
        )
        written.append(files(out))
    assert written[0] == written[1]
    assert {"summary.json", "report.html", "pictures/load.svg"} <= set(written[0])
    assert len(written[0]) == (13 if "--compare" in more else 7)


def test_nothing_is_written_unless_it_is_asked_for(trace: Path, tmp_path: Path):
    csv, summary = tmp_path / "deep" / "l.csv", tmp_path / "s.json"
    assert tenure(trace, "--csv", csv, "--summary", summary, "-q") == 0
    assert {path.name for path in tmp_path.iterdir()} == {"trace.swf", "deep", "s.json"}
    assert len(csv.read_text().splitlines()) == 121
    document = json.loads(summary.read_text())
    assert document["policies"]["easy"]["all"]["leases"] == 120


def test_the_summary_shows_figures_kinds_and_owners(trace: Path, capsys: pytest.CaptureFixture):
    assert tenure(trace) == 0
    shown = capsys.readouterr().out
    for said in (
        "leases 120",
        "slots 32",
        "wait, p95",
        "bounded slowdown, mean",
        "KIND",
        "fairness",
    ):
        assert said in shown


def test_compared_policies_stand_side_by_side(trace: Path, capsys: pytest.CaptureFixture):
    assert tenure(trace, "--compare", "off,easy+depth=3") == 0
    shown = capsys.readouterr().out
    assert "easy+depth=3 against off:" in shown


def test_a_malformed_trace_is_refused_with_line_and_reason(
    trace: Path, capsys: pytest.CaptureFixture
):
    text = trace.read_text()
    trace.write_text(text + "1 2 three\n")
    line = len(text.splitlines()) + 1
    assert tenure(trace) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"trace:{line}: a job has 18 fields, this line has 3 [BAD_TRACE]" in shown.err


def test_bad_lines_can_be_skipped_and_are_counted(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    trace.write_text(trace.read_text() + "1 2 three\nfour\n")
    summary = tmp_path / "s.json"
    assert tenure(trace, "--skip-bad", "--summary", summary) == 0
    assert "bad lines left out 2" in capsys.readouterr().out
    document = json.loads(summary.read_text())
    assert document["policies"]["easy"]["bad_lines"] == 2
    assert [reason for _, reason in document["bad_lines"]] == [
        "a job has 18 fields, this line has 3",
        "a job has 18 fields, this line has 1",
    ]


def test_of_very_many_bad_lines_the_first_are_said(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "bad"
    path.write_text("oops\n" * 5_000)
    assert tenure(path, "--nodes", 4) == 4
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 22
    assert "and 4,980 more" in said[-1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["none.swf"], 3, "TRACE_NOT_FOUND"),
        (["TRACE", "--backfilling", "sometimes"], 2, "none of off, easy"),
        (["TRACE", "--ordering", "odd"], 2, "is none of fifo, lifo"),
        (["TRACE", "--compare", "easy"], 2, "at least two"),
        (["TRACE", "--compare", "easy,easy"], 2, "each once"),
        (["TRACE", "--policy", "easy+colour=red"], 2, "KEY=VALUE"),
        (["TRACE", "--cpu", "2"], 2, "go with --nodes"),
        (["TRACE", "--nodes", "2", "--site", "s"], 2, "--site excludes"),
        (["TRACE", "--site", "s"], 3, "SITE_NOT_FOUND"),
        (["TRACE", "--png"], 2, "--png goes with"),
        (["TRACE", "--slot", "cpu"], 2, "KIND=QUANTITY"),
        (["TRACE", "--csv", "/proc/none/x.csv"], 4, "CANNOT_WRITE"),
    ],
)
def test_what_is_wrong_is_said_and_has_its_exit_code(
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    arguments: list[str],
    code: int,
    said: str,
):
    monkeypatch.chdir(trace.parent)
    words = [str(trace) if word == "TRACE" else word for word in arguments]
    assert tenure(*words) == code
    assert said in capsys.readouterr().err


def test_parquet_without_its_package_is_refused_before_anything_runs(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert tenure(trace, "--parquet", trace.with_suffix(".parquet")) == 4
    assert "pip install pyarrow" in capsys.readouterr().err


def test_a_site_from_a_file_and_injected_and_annotated_leases(trace: Path, tmp_path: Path):
    site = tmp_path / "site.json"
    site.write_text('{"nodes":[{"count":16,"amounts":{"cpu":"2"}}]}')
    more = tmp_path / "more.lwf"
    more.write_text("0 3600 600 600 4 1 1024 0 image 0\n")
    notes = tmp_path / "notes.xml"
    notes.write_text(
        '<lease-annotations><lease-annotation id="2"><start><exact time="02:00:00"/></start>'
        "</lease-annotation></lease-annotations>"
    )
    out = tmp_path / "l.json"
    words = ["--site", site, "--inject", more, "--annotate", notes, "--json", out, "-q"]
    assert tenure(trace, *words) == 0
    leases = {each["lease"]: each for each in json.loads(out.read_text())["leases"]}
    assert len(leases) == 121
    assert leases["1000001"]["kind"] == leases["2"]["kind"] == "ADVANCE"
    assert leases["1000001"]["start_ms"] == 3_600_000
    assert leases["2"]["wait_ms"] == 7_200_000


def test_convert_and_generate_write_what_simulate_reads(trace: Path, tmp_path: Path):
    made = tmp_path / "made.swf"
    assert tenure("generate", made, "--jobs", 20, "--nodes", 16, "--seed", 2) == 0
    again = tmp_path / "again.swf"
    assert tenure("generate", again, "--jobs", 20, "--nodes", 16, "--seed", 2) == 0
    assert made.read_bytes() == again.read_bytes()
    results = []
    for source, target in ((made, "t.lwf"), (tmp_path / "t.lwf", "t.json")):
        assert tenure("convert", source, tmp_path / target) == 0
        csv = tmp_path / f"{target}.csv"
        assert tenure(tmp_path / target, "--csv", csv, "-q") == 0
        results.append(csv.read_text())
    assert results[0] == results[1]


def test_annotate_makes_annotations_for_a_trace(trace: Path, tmp_path: Path):
    recipe = tmp_path / "recipe.conf"
    recipe.write_text("[deadline-stretch]\nmin = 50\nmax = 60\n")
    notes = tmp_path / "notes.xml"
    assert tenure("annotate", notes, "--config", recipe, "--trace", trace, "--nodes", 32) == 0
    out = tmp_path / "l.json"
    assert tenure(trace, "--first", 30, "--annotate", notes, "--json", out, "-q") == 4
    assert tenure(trace, "--annotate", notes, "--json", out, "-q") == 0
    kinds = {each["kind"] for each in json.loads(out.read_text())["leases"]}
    assert kinds == {"DEADLINE"}


def test_the_help_shows_options_and_commands(capsys: pytest.CaptureFixture):
    assert tenure("--help") == 0
    shown = capsys.readouterr().out
    for said in ("--compare", "--skip-bad", "convert", "generate", "annotate", "history"):
        assert said in shown


def test_simulating_loads_no_network_and_no_screen_library(trace: Path, tmp_path: Path):
    """What is loaded counts into every run: nothing of gRPC, protobuf, databases or rich is."""
    script = (
        "import sys; from tenure_cli.__main__ import cli; "
        f"cli.main(['simulate', {str(trace)!r}, '--csv', {str(tmp_path / 'o.csv')!r}],"
        " standalone_mode=False); "
        "loaded = {name.split('.')[0] for name in sys.modules}; "
        "print(sorted(loaded & {'grpc','google','asyncpg','rich','asyncio','structlog',"
        "'opentelemetry','pydantic','tenure','tenure_runtime'}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_a_multi_configuration_runs_every_combination(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    more = tmp_path / "more.lwf"
    more.write_text("0 3600 600 600 4 1 1024 0 image 0\n")
    config = tmp_path / "multi.conf"
    config.write_text(
        "[multi]\ntracefiles = trace.swf\ninjectionfiles = more.lwf\n"
        "[common:simulation]\nresources = 32 CPU:100\n"
        "[easy:scheduling]\nbackfilling = aggressive\n[fcfs:scheduling]\nbackfilling = off\n"
    )
    assert tenure("configs", config, "--list") == 0
    names = ["easy_trace", "easy_trace+more", "fcfs_trace", "fcfs_trace+more"]
    assert capsys.readouterr().out.split() == names
    out = tmp_path / "out"
    assert tenure("configs", config, "--out", out) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["RUN", *names]
    assert len((out / "easy_trace+more" / "leases.csv").read_text().splitlines()) == 122


def test_fleets_are_compared_and_their_figures_written(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """The same options twice: the same figures; each policy a column."""
    summary = tmp_path / "s.json"
    options = ("--nodes", 32, "--autoscale", "--first", 40, "--summary", summary)
    written = []
    for _ in range(2):
        assert tenure(trace, *options, "--compare", "static,reservation-aware") == 0
        written.append(summary.read_bytes())
    fleets = json.loads(written[0])["fleets"]
    assert written[0] == written[1]
    assert fleets["static"]["boots"] == 0 < fleets["reservation-aware"]["boots"]
    assert fleets["reservation-aware"]["machine_hours"] < fleets["static"]["machine_hours"]
    assert fleets["reservation-aware"]["busy_hours"] == fleets["static"]["busy_hours"]
    shown = capsys.readouterr().out
    assert "static  reservation-aware" in shown and "wasted" in shown


@pytest.mark.parametrize(
    "wrong",
    [
        ("--compare", "easy,off"),
        ("--compare", "static,static"),
        ("--boot-median", "3m"),
        ("--idle", "soon"),
        ("--csv", "l.csv"),
    ],
)
def test_what_no_fleet_can_be_is_refused(trace: Path, wrong: tuple[str, str]):
    assert tenure(trace, "--nodes", 32, "--autoscale", *wrong, "-q") == 2
