"""ReactionNetwork: species, reactions, parameters, rules and events."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import InputError, unknown_name
from .._types import Time
from ..graph import Graph
from ._expression import TIME, Environment, Expression, evaluate, symbols
from ._reaction import Event, Formula, Reaction, as_expression, read_time

ROLES = ("reactant", "product", "modifier")


class ReactionNetwork(eqx.Module):
    """Species that react: counts change by reactions, each at a rate that depends on counts, parameters and time.

    - `species`: the initial count of each. `parameters`: the value of each.
    - `rules`: formulas that give species or parameters their values at all times.
    - `fixed`: species whose counts reactions do not change, though they may be reactants and products.
    - `events`: changes of species and parameters at a time, or when a condition becomes true.

    Structure is static and values are arrays: networks that differ in their values alone share compiled programs.
    """

    species: tuple[str, ...] = eqx.field(static=True)
    reactions: tuple[Reaction, ...] = eqx.field(static=True)
    parameter_names: tuple[str, ...] = eqx.field(static=True)
    rules: tuple[tuple[str, Expression], ...] = eqx.field(static=True)
    events: tuple[Event, ...] = eqx.field(static=True)
    fixed: tuple[str, ...] = eqx.field(static=True)
    initial: Float[Array | np.ndarray, " species"]
    parameters: Float[Array | np.ndarray, " parameters"]

    def __init__(
        self,
        species: Mapping[str, float],
        reactions: Sequence[Reaction],
        *,
        parameters: Mapping[str, float] | None = None,
        rules: Mapping[str, Formula] | None = None,
        events: Sequence[Event] = (),
        fixed: Sequence[str] = (),
    ):
        parameters, rules = parameters or {}, rules or {}
        taken = {*species, *parameters}

        def timed(formula: Formula | None) -> Any:
            return None if formula is None else read_time(as_expression(formula), taken)

        self.species = tuple(species)
        self.reactions = tuple(_replace(r, rate=timed(r.rate)) for r in reactions)
        self.parameter_names = tuple(parameters)
        self.rules = tuple((name, timed(formula)) for name, formula in rules.items())
        self.events = tuple(
            _replace(
                e,
                trigger=timed(e.trigger),
                assignments=tuple((name, timed(f)) for name, f in e.assignments),
                delay=timed(e.delay),
                priority=timed(e.priority),
            )
            for e in events
        )
        self.fixed = tuple(fixed)
        # Double precision, whatever JAX computes in: compiled programs round when they are called.
        self.initial = np.array([species[name] for name in self.species], float)
        self.parameters = np.array([parameters[name] for name in self.parameter_names], float)

    def __check_init__(self):
        names = [*self.species, *self.parameter_names]
        for kind, given in (("species or parameter", names), ("reaction", [r.name for r in self.reactions])):
            if twice := sorted({name for name in given if given.count(name) > 1}):
                raise InputError(f"{kind} {twice[0]!r}: expected one of this name, got {given.count(twice[0])}.")
        ruled = {name for name, _ in self.rules}
        for reaction in self.reactions:
            for name in (*dict(reaction.reactants), *dict(reaction.products), *reaction.modifiers):
                if name not in self.species:
                    raise InputError(f"reaction {reaction.name!r}: {unknown_name('species', name, self.species)}")
            if wrong := sorted((ruled & set(reaction.change())) - set(self.fixed)):
                raise InputError(
                    f"species {wrong[0]!r} follows a rule, and reaction {reaction.name!r} changes it: it can have one "
                    "of the two. List it in fixed if the reaction should leave it as it is."
                )
            self._check_formula(f"rate of reaction {reaction.name!r}", reaction.rate)
        for name, formula in self.rules:
            if name not in names:
                raise InputError(f"rules: {unknown_name('species or parameter', name, names)}")
            self._check_formula(f"rule of {name!r}", formula)
        for event in self.events:
            for target, _ in event.assignments:
                if target not in names or target in ruled:
                    free = [n for n in names if n not in ruled]
                    raise InputError(f"event {event.name!r}: {unknown_name('species or parameter', target, free)}")
            for formula in event.formulas():
                self._check_formula(f"event {event.name!r}", formula)
        for name in self.fixed:
            if name not in self.species:
                raise InputError(f"fixed: {unknown_name('species', name, self.species)}")

    def _check_formula(self, where: str, formula: Expression) -> None:
        known = {*self.species, *self.parameter_names, TIME.name}
        if unknown := sorted(symbols(formula) - known):
            names = [*self.species, *self.parameter_names, "time"]
            raise InputError(f"{where}: {unknown_name('species or parameter', unknown[0], names)}")

    def __repr__(self) -> str:
        return f"ReactionNetwork(species={list(self.species)}, reactions={[r.name for r in self.reactions]})"

    # Structure

    @property
    def stoichiometry(self) -> np.ndarray:
        """By how much a firing of each reaction (rows) changes each species (columns)."""
        out = np.zeros((len(self.reactions), len(self.species)))
        for j, reaction in enumerate(self.reactions):
            for name, count in self.change(reaction).items():
                out[j, self.species.index(name)] = count
        return out

    def change(self, reaction: Reaction) -> dict[str, float]:
        """What a firing changes in this network, where some species may be fixed."""
        return {name: n for name, n in reaction.change().items() if name not in self.fixed}

    def reads(self, formula: Expression) -> set[str]:
        """The names whose values a formula needs, through rules."""
        rules, found, todo = dict(self.rules), set(), list(symbols(formula))
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += symbols(rules[name]) if name in rules else []
        return found - set(rules)

    def changing(self) -> tuple[str, ...]:
        """Names whose values change by reactions or events, species first."""
        changed = {name for r in self.reactions for name in self.change(r)}
        changed |= {target for e in self.events for target, _ in e.assignments}
        return tuple(name for name in (*self.species, *self.parameter_names) if name in changed)

    def modifiers(self, reaction: Reaction) -> tuple[str, ...]:
        """Species that a rate depends on and that are no reactants, and those that the reaction lists."""
        read = self.reads(reaction.rate) | symbols(reaction.rate) | set(reaction.modifiers)
        return tuple(name for name in self.species if name in read - set(dict(reaction.reactants)))

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes of `graph()`: species, then reactions."""
        return (*self.species, *(r.name for r in self.reactions))

    def graph(self, *, signed: bool = False) -> Graph:
        """Species and reactions as nodes, joined both ways where a species takes part.

        The three channels of `edge_features` say how, 0 or 1 each: as reactant, product, modifier. Weights are 1, or
        with `signed` what a firing adds to the species, 0 for modifiers.
        """
        senders, receivers, roles, weights = [], [], [], []
        for j, reaction in enumerate(self.reactions):
            parts = (dict(reaction.reactants), dict(reaction.products), self.modifiers(reaction))
            for i, name in enumerate(self.species):
                if any(name in part for part in parts):
                    senders.append(i)
                    receivers.append(len(self.species) + j)
                    roles.append([float(name in part) for part in parts])
                    weights.append(float(self.change(reaction).get(name, 0)) if signed else 1.0)
        features = np.array(roles, np.float32).reshape(-1, len(ROLES))
        return Graph.from_edges(
            senders, receivers, weights, len(self.node_names), edge_features=features, undirected=True
        )

    # Values

    def with_parameters(self, **values: float | Array) -> "ReactionNetwork":
        """The same network with other values of some parameters, which may be traced."""
        return self._with("parameters", self.parameter_names, values)

    def with_initial(self, **counts: float | Array) -> "ReactionNetwork":
        """The same network from other initial counts."""
        return self._with("initial", self.species, counts)

    def without(self, *names: str) -> "ReactionNetwork":
        """The network with some species or reactions knocked out: none of the species, reactions that never fire."""
        reactions = [r.name for r in self.reactions]
        for name in names:
            if name not in (*self.species, *reactions):
                raise InputError(unknown_name("species or reaction", name, (*self.species, *reactions)))
            if name in dict(self.rules):
                raise InputError(f"species {name!r} follows a rule, so it cannot be knocked out. Change the rule.")
        given = self.given()
        return ReactionNetwork(
            {name: 0.0 if name in names else given[name] for name in self.species},
            [r for r in self.reactions if r.name not in names],
            parameters={name: given[name] for name in self.parameter_names},
            rules=dict(self.rules),
            events=self.events,
            fixed=tuple(dict.fromkeys([*self.fixed, *(n for n in names if n in self.species)])),
        )

    def _with(self, field: str, names: tuple[str, ...], values: dict[str, Any]) -> "ReactionNetwork":
        old = getattr(self, field)
        for name in values:
            if name not in names:
                raise InputError(unknown_name("parameter" if field == "parameters" else "species", name, names))
        numbers = [values.get(name, old[i]) for i, name in enumerate(names)]
        traced = any(isinstance(v, Array) for v in numbers)
        new = jnp.stack([jnp.asarray(v, float) for v in numbers]) if traced else np.array(numbers, float)
        return eqx.tree_at(lambda network: getattr(network, field), self, new)

    def given(self) -> dict[str, float]:
        """Initial counts and parameters by name, on the host."""
        numbers = np.concatenate([np.asarray(self.initial, float), np.asarray(self.parameters, float)])
        return dict(zip((*self.species, *self.parameter_names), numbers.tolist(), strict=True))

    def values(self, t: Time | Array, x: Float[Array, "*batch species"]) -> Environment:
        """Every name at time t with counts x; species that follow a rule have its value, not the one in x."""
        rules = dict(self.rules)
        given = {name: x[..., i] for i, name in enumerate(self.species) if name not in rules}
        parameters = jnp.asarray(self.parameters, x.dtype)
        given |= {name: parameters[i] for i, name in enumerate(self.parameter_names) if name not in rules}
        return Environment({**given, TIME.name: jnp.asarray(t, x.dtype)}, rules)

    def propensities(self, t: Time | Array, x: Float[Array, "*batch species"]) -> Float[Array, "*batch reactions"]:
        """The rate of each reaction."""
        environment = self.values(t, x)
        rates = [evaluate(r.rate, environment) for r in self.reactions]
        shape = x.shape[:-1]
        return jnp.stack([jnp.broadcast_to(jnp.asarray(a, x.dtype), shape) for a in rates], axis=-1)

    def observe(self, t: Time | Array, x: Float[Array, "*batch species"]) -> Float[Array, "*batch species"]:
        """The counts, with the values of species that follow rules put in."""
        environment = self.values(t, x)
        rows = [environment.read(name, jnp) for name in self.species]
        return jnp.stack([jnp.broadcast_to(jnp.asarray(v, x.dtype), x.shape[:-1]) for v in rows], axis=-1)


def _replace(record: Any, **changes: Any) -> Any:
    """A copy of a frozen record with some fields changed; `dataclasses.replace` would call its __init__."""
    out = object.__new__(type(record))
    for field in dataclasses.fields(record):
        object.__setattr__(out, field.name, changes.get(field.name, getattr(record, field.name)))
    return out
