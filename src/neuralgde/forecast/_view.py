"""What a network is shown of a window, and how its forecasts are read."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..data import Windows
from ..model import Gaussian


class View(eqx.Module):
    """Readings by a scale; or how far they are off what was to be expected, `base`, by a scale of their own.

    `mean` and `std` are those of readings, of all sensors together or of each; `off_std` that of what is off, None
    where a network is shown the readings themselves. What is to be expected is known for all times, so also for those
    asked for. With `lines`, for each variable a `Ridge` or another forecast of windows, the network says how far off
    those the truth will be: it learns what they miss.
    """

    mean: Float[Array, "..."]
    std: Float[Array, "..."]
    off_std: Float[Array, "..."] | None
    lines: tuple[Any, ...] = ()

    def show(self, windows: Windows) -> tuple[Windows, Array | None]:
        """The window in the units of the network, and its inputs: what was to be expected, and the windows' own."""
        if self.off_std is None or windows.base is None or windows.query_base is None:
            values, targets = ((a - self.mean) / self.std for a in (windows.values, windows.targets))
            inputs = None if windows.inputs is None else jnp.asarray(windows.inputs)
        else:
            values = (windows.values - windows.base) / self.off_std
            targets = (windows.targets - self._ahead(windows)) / self.off_std
            inputs = jnp.asarray((windows.base - self.mean) / self.std)
            if windows.inputs is not None:
                inputs = jnp.concatenate([inputs, windows.inputs], axis=-1)
        values, targets = jnp.where(windows.mask, values, 0), jnp.where(windows.target_mask, targets, 0)
        return eqx.tree_at(lambda w: (w.values, w.targets), windows, (values, targets)), inputs

    def read(self, out: Any, windows: Windows) -> Any:
        """Forecasts in the units of the data: values, or normal distributions."""
        base, size = self.mean, self.std
        if self.off_std is not None and windows.query_base is not None:
            base, size = self._ahead(windows), self.off_std
        if isinstance(out, Gaussian):
            return Gaussian(out.loc * size + base, out.scale * size)
        return out * size + base

    def _ahead(self, windows: Windows) -> Array:
        """What a forecast starts from: what is to be expected, or what the regressions say."""
        if not self.lines:
            return jnp.asarray(windows.query_base)
        windows = jax.tree.map(jnp.asarray, windows)
        return jnp.stack([line(windows.feature(v)) for v, line in enumerate(self.lines)], axis=-1)


def mean_of(out: Any) -> Array:
    """A forecast as one value a point."""
    return out.mean if isinstance(out, Gaussian) else out
