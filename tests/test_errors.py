"""The errors are of the built-in kinds that callers already catch."""

import pytest

from neuralgde import CheckpointError, InputError, SolveError


@pytest.mark.parametrize(
    "error, kind", [(InputError, ValueError), (SolveError, RuntimeError), (CheckpointError, RuntimeError)]
)
def test_kinds(error, kind):
    assert issubclass(error, kind)


def test_solve_error_tells_cause_and_time():
    error = SolveError("the state became NaN at t = 0.5", status="nonfinite", time=0.5)
    assert (error.status, error.time) == ("nonfinite", 0.5)
    assert str(error) == "the state became NaN at t = 0.5"
    assert SolveError("too many steps", status="max_steps").time is None
