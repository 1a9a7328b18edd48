"""How a solve ended, in a number that comes back from `jit` and in words that name the cause and the usual fix."""

import enum


class Status(enum.IntEnum):
    """How a solve ended. Anything but `SUCCESS` means that states after `reached` are NaN."""

    SUCCESS = 0
    MAX_STEPS = 1
    NOT_FINITE = 2
    STEP_UNDERFLOW = 3
    BAD_STATE = 4
    BAD_TIMES = 5
    IMPLICIT_FAILED = 6


_CAUSES = {
    Status.MAX_STEPS: (
        "the solver used up max_steps={max_steps} before the last time",
        "raise max_steps, loosen rtol and atol, or take an implicit solver such as 'kvaerno5' if the field is stiff",
    ),
    Status.NOT_FINITE: (
        "the state or the field became NaN or infinite",
        "look at the field's output there: exploding dynamics, a division by zero or a parameter that is not finite; "
        "with a fixed step, take a smaller dt0",
    ),
    Status.STEP_UNDERFLOW: (
        "the step shrank below what floating point can add to the time",
        "the solution blows up or the field jumps there: check the field, name jumps as breakpoints, loosen rtol and "
        "atol, or compute in float64",
    ),
    Status.BAD_STATE: ("z0 holds NaN or infinity", "clean or mask the initial state"),
    Status.BAD_TIMES: (
        "times are not finite and in order",
        "give finite times that all increase, or all decrease",
    ),
    Status.IMPLICIT_FAILED: (
        "the implicit solver's equations could not be solved",
        "loosen rtol and atol, take a smaller dt0 or first_step, or an explicit solver such as 'tsit5'",
    ),
}


def describe(status: Status, *, max_steps: int, where: str = "") -> str:
    """One sentence for a status: the cause, where it happened, what usually helps."""
    cause, fix = _CAUSES[status]
    return f"the solve failed{where}: {cause.format(max_steps=max_steps)}. Usual fix: {fix}."
