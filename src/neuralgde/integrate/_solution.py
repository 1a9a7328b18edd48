"""What a solve returns."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int


class Solution(eqx.Module):
    """States at the times asked for; `states[0]` is z0. In a batch, the batch is the first axis of both.

    `status` compares to `Status`; `reached` is the last time that was solved to: later states are NaN. `stats` counts
    `num_steps`, `num_accepted_steps`, `num_rejected_steps` and `num_evaluations` of the field, which is None for
    implicit solvers. A batch of `solve_sde` has a status and counts for each trajectory.
    """

    times: Float[Array, "*batch times"]
    states: Float[Array, "..."]
    status: Int[Array, "..."]
    reached: Float[Array, "*batch"]
    stats: dict[str, Any]
