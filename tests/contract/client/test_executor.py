"""Functions run under leases, each in one of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from tests.contract.client import calls

from tenure.client import LeaseEnded, LeaseExecutor, LeaseState

SMALL = {"cpu": "0.2", "memory": "128Mi", "duration": "2m"}


@pytest.fixture(params=["output", "folder"])
def executor(plane, tmp_path, request):
    folder = tmp_path if request.param == "folder" else None
    with LeaseExecutor(plane, folder=folder, **SMALL) as executor:
        yield executor
    assert not list(tmp_path.iterdir()), "files of calls are left behind"


def test_each_call_runs_under_a_lease_of_its_own(executor, plane):
    values = list(executor.map(calls.where, range(4), timeout=60))
    assert [value for value, _, _ in values] == [0, 1, 4, 9]
    leases = {lease for _, lease, _ in values}
    assert len(leases) == 4
    for lease in leases:
        info = plane.lease(lease.rpartition("/")[2]).info
        assert info.state is LeaseState.DONE
        assert info.amounts == {"cpu": 200, "memory": 128 * 1024**2}


def test_an_exception_comes_back_with_its_traceback(executor):
    with pytest.raises(calls.Odd, match="so odd") as raised:
        executor.submit(calls.fail, "so odd").result(60)
    assert "in fail" in str(raised.value.__cause__)


def test_what_a_function_prints_does_not_disturb_what_it_returns(executor):
    assert executor.submit(calls.chatter, 300_000).result(60) == b"x" * 300_000


def test_a_result_without_a_pickle_says_so(executor):
    with pytest.raises(TypeError, match="cannot be pickled"):
        executor.submit(calls.unpicklable).result(60)


def test_a_process_that_dies_is_a_lease_that_ended(executor):
    with pytest.raises(LeaseEnded) as raised:
        executor.submit(calls.die).result(60)
    assert raised.value.lease.exit_code == 3


def test_a_cancelled_call_gives_its_lease_back(plane):
    with LeaseExecutor(plane, labels={"call": "cancelled"}, **SMALL) as executor:
        future = executor.submit(calls.sleep, 100)
        for change in plane.watch(relist=True):
            if change.lease.labels.get("call") == "cancelled":
                if change.lease.state is LeaseState.ACTIVE:
                    assert future.cancel()
                if change.lease.ended:
                    assert change.lease.state is LeaseState.CANCELLED
                    break
        assert future.cancelled()


def test_what_cannot_travel_is_refused_at_once(plane):
    with LeaseExecutor(plane, **SMALL) as executor:
        with pytest.raises(ValueError, match="give the executor a folder"):
            executor.submit(calls.where, b"x" * 100_000)
        with pytest.raises(ValueError, match="cannot be pickled"):
            executor.submit(lambda: 1)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(calls.where, 1)
    with pytest.raises(TypeError, match="which command"):
        LeaseExecutor(plane, command=["true"])


def test_the_environment_of_the_lease_is_kept(plane):
    with LeaseExecutor(plane, environment={"COLOUR": "blue"}, **SMALL) as executor:
        assert executor.submit(calls.environment, "COLOUR").result(60) == "blue"


def test_a_script_sends_its_own_functions(suite, tmp_path):
    script = tmp_path / "squares.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from tenure.client import LeaseExecutor, connect

            OFFSET = 1

            def square(n):
                return n * n + OFFSET

            if __name__ == "__main__":
                with connect(sys.argv[1]) as plane, LeaseExecutor(plane, cpu="0.2") as executor:
                    print(list(executor.map(square, [1, 2, 3])))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, script, suite.folder],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[2, 5, 10]\n"), done.stderr
