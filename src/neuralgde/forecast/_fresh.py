"""FreshWindows: windows of the training rows, undersampled anew whenever they are asked for."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .._arrays import on_device
from ..data import Windows


class FreshWindows(eqx.Module):
    """Windows that end at given rows, whatever the spacing of the rows in time.

    Seen from a row that is kept, the number of rows to the one kept before it is geometric, and so is that to the one
    after. So gaps drawn backwards from any row make a window of a new undersampling that ends there, and gaps drawn
    forwards as many targets as are wanted, each of which might have been the next. With `farthest`, the last row that
    may be asked for from each, the first target is the next row, and the others may be near or far: the logarithm of
    how many rows they are ahead is uniform. A share `outages` of sensors goes out somewhere in the window and stays
    out, so that a network learns what to do without them; the truth of all counts.

    - `whole`, `part` (rows,): the time of rows in steps, cut so that differences are exact; `phase`: the time of day.
    - `first`, `last` (rows,): the ends of the stretch without a break that each row is in.
    - `reach`: from so many steps on, times asked for count by their logarithm.
    """

    values: Float[Array, "rows nodes features"]
    there: Bool[Array, "rows nodes features"]
    base: Float[Array, "rows nodes features"] | None
    inputs: Float[Array, "rows nodes channels"] | None
    era: Int[Array, " rows"] | None
    day: Int[Array, " rows"] | None
    whole: Int[Array, " rows"]
    part: Float[Array, " rows"]
    phase: Float[Array, " rows"]
    first: Int[Array, " rows"]
    last: Int[Array, " rows"]
    farthest: Int[Array, " rows"] | None
    keep: Float[Array, ""]
    outages: Float[Array, ""]
    reach: Float[Array, ""]
    length: int = eqx.field(static=True)
    queries: int = eqx.field(static=True)
    period: int = eqx.field(static=True)

    @staticmethod
    def of(
        values: Float[np.ndarray, "rows nodes features"],
        steps: np.ndarray,
        phase: np.ndarray,
        *,
        period: int,
        length: int,
        keep: float = 1.0,
        queries: int = 1,
        outages: float = 0.0,
        base: np.ndarray | None = None,
        inputs: np.ndarray | None = None,
        era: np.ndarray | None = None,
        day: np.ndarray | None = None,
        longest_gap: float = 1.0,
        horizon: float | None = None,
        reach: float = np.inf,
    ) -> "FreshWindows":
        """From readings, NaN where there are none; a gap above `longest_gap` steps is a break that no window crosses.

        `horizon` is how many steps ahead the farthest row may be that is asked for.
        """
        there = ~np.isnan(values)
        stretch = np.cumsum(np.diff(steps, prepend=steps[0]) > longest_gap)
        ends = np.append(np.flatnonzero(np.diff(stretch, prepend=-1)), len(stretch))
        last = ends[stretch + 1] - 1
        farthest = None
        if horizon is not None:
            farthest = np.minimum(np.searchsorted(steps, steps + horizon, side="right") - 1, last)
            farthest = on_device(np.maximum(farthest, np.arange(len(steps)) + 1), np.int32)
        return FreshWindows(
            on_device(np.where(there, values, 0), float),
            on_device(there),
            None if base is None else on_device(base, float),
            None if inputs is None else on_device(inputs, float),
            None if era is None else on_device(era, np.int32),
            None if day is None else on_device(day, np.int32),
            on_device(np.floor(steps) - np.floor(steps[0]), np.int32),
            on_device(steps - np.floor(steps), float),
            on_device(phase, float),
            on_device(ends[stretch], np.int32),
            on_device(last, np.int32),
            farthest,
            on_device(keep, float),
            on_device(outages, float),
            on_device(reach, float),
            length,
            queries,
            period,
        )

    @property
    def rows(self) -> Int[np.ndarray, " windows"]:
        """The rows that windows may end at."""
        rows, first, last = np.arange(len(self.whole)), np.asarray(self.first), np.asarray(self.last)
        return rows[(rows - first >= self.length - 1) & (rows < last)].astype(np.int32)

    def __call__(self, rows: Int[Array, " batch"], key: PRNGKeyArray) -> Windows:
        """Windows that end at rows; where one would reach over a break, it counts for nothing: no target is there."""
        k_before, k_after, k_out, k_when = jax.random.split(key, 4)
        before, after = self._gaps(k_before, rows, self.length - 1), self._ahead(k_after, rows)
        back = jnp.pad(jnp.cumsum(before, axis=1), ((0, 0), (1, 0)))[:, ::-1]
        past, ahead = rows[:, None] - back, rows[:, None] + after
        fits = (past[:, :1] >= self.first[rows][:, None]) & (ahead <= self.last[rows][:, None])
        now, dtype = self.phase[rows][:, None], self.values.dtype
        # By the gaps where a row is not the one that was meant, so that times are in order.
        times = jnp.where(fits[:, :1], now + self._since(past, rows), now - back.astype(dtype))
        query_times = now + jnp.where(fits, warp(self._since(ahead, rows), self.reach), after.astype(dtype))
        past, ahead = jnp.maximum(past, 0), jnp.minimum(ahead, len(self.whole) - 1)
        mask = self.there[past] & ~self._out(k_out, k_when, rows)[..., None]
        return Windows(
            times=times,
            values=jnp.where(mask, self.values[past], 0),
            mask=mask,
            query_times=query_times,
            targets=self.values[ahead],
            target_mask=self.there[ahead] & fits[:, :, None, None],
            period=self.period,
            base=None if self.base is None else self.base[past],
            query_base=None if self.base is None else self.base[ahead],
            inputs=None if self.inputs is None else self.inputs[past],
            era=None if self.era is None else self.era[rows],
            day=None if self.day is None else self.day[rows],
        )

    def _since(self, others: Int[Array, "batch count"], rows: Int[Array, " batch"]) -> Float[Array, "batch count"]:
        """The time of other rows after that of `rows`, in steps."""
        at = jnp.clip(others, 0, len(self.whole) - 1)
        whole = (self.whole[at] - self.whole[rows][:, None]).astype(self.part.dtype)
        return whole + (self.part[at] - self.part[rows][:, None])

    def _gaps(self, key: PRNGKeyArray, rows: Array, count: int) -> Int[Array, "batch count"]:
        draws = jax.random.uniform(key, (rows.shape[0], count), minval=1e-7)
        # Where all are kept the logarithm below is -inf, and every gap 1.
        return 1 + jnp.floor(jnp.log(draws) / jnp.log1p(-self.keep)).astype(jnp.int32)

    def _ahead(self, key: PRNGKeyArray, rows: Array) -> Int[Array, "batch queries"]:
        if self.farthest is None:
            return self._gaps(key, rows, self.queries)
        most = (self.farthest[rows] - rows).astype(self.values.dtype)[:, None]
        draws = jax.random.uniform(key, (rows.shape[0], self.queries))
        draws = jnp.where(jnp.arange(self.queries) > 0, draws, 0)
        return jnp.clip(jnp.floor(jnp.exp(draws * jnp.log(most + 1))), 1, most).astype(jnp.int32)

    def _out(self, k_out: PRNGKeyArray, k_when: PRNGKeyArray, rows: Array) -> Bool[Array, "batch length nodes"]:
        shape = (rows.shape[0], self.values.shape[1])
        since = jax.random.randint(k_when, shape, 0, self.length)
        since = jnp.where(jax.random.uniform(k_out, shape) < self.outages, since, self.length)
        return jnp.arange(self.length)[:, None] >= since[:, None]


def warp(gap: Any, reach: Any) -> Any:
    """A time ahead as a network is told it: itself up to `reach`, then so that it grows as its logarithm does."""
    # Host arrays stay on the host: there each new shape would need compiled programs.
    xp = np if isinstance(gap, np.ndarray) else jnp
    far = xp.where(xp.isfinite(reach), reach, 1).astype(gap.dtype)
    return xp.where(gap <= reach, gap, far * (1 + xp.log(xp.maximum(gap, far) / far)))
