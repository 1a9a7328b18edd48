"""Reactions and events: what can happen in a network, and how fast."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .._errors import InputError
from ._expression import TIME, Apply, Expression, Number, Symbol, substitute
from ._formula import parse_formula

Formula: TypeAlias = str | float | Expression


def as_expression(formula: Formula) -> Expression:
    """An expression from text or a number; `time` in text is time, unless the network has something of that name."""
    if isinstance(formula, str):
        return parse_formula(formula)
    return Number(float(formula)) if isinstance(formula, int | float) else formula


@dataclass(frozen=True)
class MassAction:
    """A rate of k times the number of distinct sets of reactants: k A B for A + B, k A (A - 1) / 2 for 2 A."""

    constant: Formula

    def expression(self, reactants: Mapping[str, float]) -> Expression:
        """The rate with these reactants."""
        factors, ways = [as_expression(self.constant)], 1
        for name, count in reactants.items():
            if count != int(count):
                raise InputError(f"mass action: expected a whole number of {name!r} as reactants, got {count}.")
            for taken in range(int(count)):
                left = Symbol(name)
                factors.append(Apply("-", (left, Number(float(taken)))) if taken else left)
                ways *= taken + 1
        rate = factors[0] if len(factors) == 1 else Apply("*", tuple(factors))
        return rate if ways == 1 else Apply("/", (rate, Number(float(ways))))


@dataclass(frozen=True)
class Hill:
    """A rate that a species drives or, with `represses`, holds back:

    base + top x^n / (half^n + x^n), or base + top half^n / (half^n + x^n) where it represses.
    """

    species: str
    top: Formula
    half: Formula
    power: Formula
    base: Formula = 0.0
    represses: bool = False

    def expression(self, reactants: Mapping[str, float]) -> Expression:
        """The rate, whatever the reactants."""
        del reactants
        n = as_expression(self.power)
        half = Apply("^", (as_expression(self.half), n))
        x = Apply("^", (Symbol(self.species), n))
        driven = Apply("*", (as_expression(self.top), half if self.represses else x))
        return Apply("+", (as_expression(self.base), Apply("/", (driven, Apply("+", (half, x))))))


@dataclass(frozen=True, init=False)
class Reaction:
    """Reactants become products at a rate: a `MassAction`, a `Hill`, or any formula of species, parameters and time.

    Rates count firings per unit of time. Species that a rate reads and that are no reactants are its modifiers, and
    need not be listed.
    """

    name: str
    reactants: tuple[tuple[str, float], ...]
    products: tuple[tuple[str, float], ...]
    rate: Expression
    modifiers: tuple[str, ...]

    def __init__(
        self,
        name: str,
        reactants: Mapping[str, float],
        products: Mapping[str, float],
        rate: Formula | MassAction | Hill,
        modifiers: tuple[str, ...] = (),
    ):
        for role, side in (("reactants", reactants), ("products", products)):
            for species, count in side.items():
                if not count > 0:
                    raise InputError(f"reaction {name!r}: expected a positive count in {role}, got {species}: {count}.")
        rate = rate.expression(reactants) if isinstance(rate, MassAction | Hill) else as_expression(rate)
        # A frozen dataclass with its own __init__ has this one way to set its fields.
        for label, value in (
            ("name", name),
            ("reactants", tuple((s, float(n)) for s, n in reactants.items())),
            ("products", tuple((s, float(n)) for s, n in products.items())),
            ("rate", rate),
            ("modifiers", tuple(modifiers)),
        ):
            object.__setattr__(self, label, value)

    def change(self) -> dict[str, float]:
        """By how much one firing changes each species; catalysts are left out."""
        out: dict[str, float] = {}
        for side, sign in ((self.reactants, -1.0), (self.products, 1.0)):
            for species, count in side:
                out[species] = out.get(species, 0.0) + sign * count
        return {species: n for species, n in out.items() if n}


@dataclass(frozen=True, init=False)
class Event:
    """When `trigger` becomes true, the assignments are made, after `delay` where one is given.

    `starts_true` is the trigger's value just before the start: with False, an event whose trigger holds at the start
    happens there. With `persistent=False` the event is called off when its trigger becomes false before its delay is
    over. `early_values` takes the assigned values at the time of the trigger, not at that of the assignment. Of events
    at the same time, the one with the highest `priority` comes first.
    """

    name: str
    trigger: Expression
    assignments: tuple[tuple[str, Expression], ...]
    delay: Expression | None
    priority: Expression | None
    persistent: bool
    starts_true: bool
    early_values: bool

    def __init__(
        self,
        name: str,
        trigger: Formula,
        assignments: Mapping[str, Formula],
        *,
        delay: Formula | None = None,
        priority: Formula | None = None,
        persistent: bool = True,
        starts_true: bool = True,
        early_values: bool = True,
    ):
        for label, value in (
            ("name", name),
            ("trigger", as_expression(trigger)),
            ("assignments", tuple((target, as_expression(f)) for target, f in assignments.items())),
            ("delay", None if delay is None else as_expression(delay)),
            ("priority", None if priority is None else as_expression(priority)),
            ("persistent", persistent),
            ("starts_true", starts_true),
            ("early_values", early_values),
        ):
            object.__setattr__(self, label, value)

    def formulas(self) -> list[Expression]:
        """All formulas of the event."""
        extra = [f for f in (self.delay, self.priority) if f is not None]
        return [self.trigger, *(f for _, f in self.assignments), *extra]


def read_time(formula: Expression, taken: set[str]) -> Expression:
    """The formula with the word `time` read as time, where the network has nothing of that name."""
    return formula if "time" in taken else substitute(formula, {"time": TIME})
