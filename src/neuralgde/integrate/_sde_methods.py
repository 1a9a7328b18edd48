"""One step of each method for dz = f dt + g ∘ dW, written for the increments f Δt and g ΔW."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
from jaxtyping import Array, PyTree


@runtime_checkable
class Increments(Protocol):
    """What a method may ask of an equation on a step: the increments of drift and noise, their sum, the noise's."""

    def both(self, t: Array, y: PyTree) -> tuple[PyTree, PyTree]: ...
    def total(self, t: Array, y: PyTree) -> PyTree: ...
    def noise(self, t: Array, y: PyTree) -> PyTree: ...


def _euler_heun(start: Array, end: Array, y: PyTree, inc: Increments) -> PyTree:
    drift, noise = inc.both(start, y)
    later = inc.noise(end, _add(y, noise))
    return _add(y, drift, _mean(noise, later))


def _heun(start: Array, end: Array, y: PyTree, inc: Increments) -> PyTree:
    first = inc.total(start, y)
    return _add(y, _mean(first, inc.total(end, _add(y, first))))


def _midpoint(start: Array, end: Array, y: PyTree, inc: Increments) -> PyTree:
    middle = jax.tree.map(lambda y, dy: y + dy / 2, y, inc.total(start, y))
    return _add(y, inc.total(start + (end - start) / 2, middle))


@runtime_checkable
class ComponentwiseIncrements(Increments, Protocol):
    """As above, and Milstein's correction."""

    def noise_squared(self, t: Array, y: PyTree) -> PyTree: ...


def _milstein(start: Array, end: Array, y: PyTree, inc: ComponentwiseIncrements) -> PyTree:
    del end
    return _add(y, inc.total(start, y), inc.noise_squared(start, y))


class Method(NamedTuple):
    """A method, and how often it evaluates the drift and the diffusion, at any state and at the start of the step."""

    step: Callable[..., PyTree]
    evaluations: int
    at_start: int = 2
    componentwise: bool = False


SDE_SOLVERS = {
    "euler_heun": Method(_euler_heun, 3),
    "heun": Method(_heun, 4),
    "midpoint": Method(_midpoint, 4),
    "milstein": Method(_milstein, 3, at_start=3, componentwise=True),
}


def _add(y: PyTree, *others: PyTree) -> PyTree:
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), y, *others)


def _mean(first: PyTree, second: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: (a + b) / 2, first, second)
