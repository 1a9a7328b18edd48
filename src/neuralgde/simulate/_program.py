"""Program: a network made ready for stochastic simulation, all its structure static."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .._errors import InputError
from ._expression import TIME, Apply, Environment, Expression, Number, Symbol, evaluate, symbols, transform
from ._network import ReactionNetwork, _replace
from ._order import rate_orders
from ._reaction import Event, Reaction
from ._timed import CLOCK, LATE, check_time_lifted, inline_time, lift_comparisons


@dataclass(frozen=True)
class Program:
    """`variables` change by reactions or events; `constants` are all else that formulas read, in order of a vector.

    `changes` has for each reaction what a firing adds to which variable; `moments` are the times at which a comparison
    with time may turn. `restless` says that reactions may move those times. `counted` are the variables that reactions
    change; `orders` has for each reaction those that its rate depends on, with the order of the rate and how many are
    reactants.
    """

    reactions: tuple[str, ...]
    variables: tuple[str, ...]
    constants: tuple[str, ...]
    rules: tuple[tuple[str, Expression], ...]
    rates: tuple[Expression, ...]
    changes: tuple[tuple[tuple[int, float], ...], ...]
    events: tuple[Event, ...]
    moments: tuple[Expression, ...]
    restless: bool
    counted: tuple[int, ...]
    orders: tuple[tuple[tuple[int, float, int], ...], ...]


class _Folder:
    """Finds what never changes: its value is computed once, on the host."""

    def __init__(self, network: ReactionNetwork):
        rules = dict(network.rules)
        changing = set(network.changing()) | {TIME.name, CLOCK.name, LATE.name}
        self.values: dict[str, float] = {}
        given = network.given()
        self._environment = Environment({n: v for n, v in given.items() if n not in rules and n not in changing}, rules)
        self._constant = {n for n in given if not network.reads(Symbol(n)) & changing}

    def constant(self, formula: Expression) -> float | None:
        """The value of a formula that never changes; None for others."""
        if not symbols(formula) <= self._constant:
            return None
        with np.errstate(all="ignore"):
            return float(evaluate(formula, self._environment, np))

    def fold(self, formula: Expression) -> Expression:
        """The formula with its constant parts as names of constants, and constant exponents as numbers."""
        return self._hoist(transform(formula, self._fix_exponent))

    def _fix_exponent(self, part: Expression) -> Expression:
        if isinstance(part, Apply) and part.operator == "^" and (n := self.constant(part.arguments[1])) is not None:
            return Apply("^", (part.arguments[0], Number(n)))
        return part

    def _hoist(self, part: Expression) -> Expression:
        if isinstance(part, Number):
            return part
        if (value := self.constant(part)) is not None:
            if not symbols(part):
                return Number(value)
            # Equal formulas share a constant, and the name does not depend on the value: programs are shared too.
            name = part.name if isinstance(part, Symbol) else f"${part!r}"
            self.values[name] = value
            return Symbol(name)
        if isinstance(part, Apply):
            return Apply(part.operator, tuple(self._hoist(a) for a in part.arguments))
        return part


def build_program(network: ReactionNetwork) -> tuple[Program, np.ndarray, np.ndarray]:
    """The program, its constants, and the initial values of its variables."""
    variables = network.changing()
    place = {name: i for i, name in enumerate(variables)}
    folder = _Folder(network)
    rules = dict(network.rules)
    moments: list[Expression] = []

    def prepare(formula: Expression, where: str) -> Expression:
        lifted, found = lift_comparisons(inline_time(formula, rules), folder.constant, where)
        check_time_lifted(lifted, where)
        moments.extend(folder.fold(m) for m in found)
        return folder.fold(lifted)

    rates = tuple(prepare(r.rate, f"the rate of reaction {r.name!r}") for r in network.reactions)
    events = []
    for event in network.events:
        trigger = prepare(event.trigger, f"the trigger of event {event.name!r}")
        assignments = tuple((name, folder.fold(inline_time(f, rules))) for name, f in event.assignments)
        extra = {
            label: None if formula is None else folder.fold(inline_time(formula, rules))
            for label, formula in (("delay", event.delay), ("priority", event.priority))
        }
        events.append(_replace(event, trigger=trigger, assignments=assignments, **extra))
    changes = tuple(tuple((place[name], n) for name, n in network.change(r).items()) for r in network.reactions)
    counted = tuple(sorted({i for change in changes for i, _ in change}))
    reached = {variables[i] for i in counted}
    # Before the constants are listed: folding the rules may find more.
    kept = _needed_rules(network, [*rates, *moments, *(f for e in events for f in e.formulas())], folder)
    program = Program(
        reactions=tuple(r.name for r in network.reactions),
        variables=variables,
        constants=tuple(folder.values),
        rules=kept,
        rates=rates,
        changes=changes,
        events=tuple(events),
        moments=tuple(dict.fromkeys(moments)),
        restless=any(network.reads(m) & reached for m in moments),
        counted=counted,
        orders=tuple(
            _orders(r, rate, dict(kept), place, counted) for r, rate in zip(network.reactions, rates, strict=True)
        ),
    )
    values = network.given()
    initial = np.array([values[name] for name in variables], float)
    return program, np.array([folder.values[name] for name in program.constants], float), initial


def _orders(
    reaction: Reaction, rate: Expression, rules: dict[str, Expression], place: dict[str, int], counted: tuple[int, ...]
) -> tuple[tuple[int, float, int], ...]:
    found = {place[name]: order for name, order in rate_orders(rate, rules).items() if name in place}
    total, copies = sum(found.values()), {place[s]: int(n) for s, n in reaction.reactants if s in place}
    return tuple((i, total, max(1, copies.get(i, 1))) for i in found if i in counted)


def _needed_rules(
    network: ReactionNetwork, formulas: Iterable[Expression], folder: _Folder
) -> tuple[tuple[str, Expression], ...]:
    rules, kept, todo = dict(network.rules), {}, [name for f in formulas for name in symbols(f)]
    while todo:
        name = todo.pop()
        if name in rules and name not in kept and name not in folder.values:
            kept[name] = folder.fold(rules[name])
            todo += symbols(kept[name])
    return tuple(kept.items())


def check_counts(program: Program, initial: np.ndarray) -> np.ndarray:
    """Initial values with counts rounded to the whole numbers they have to be."""
    out = initial.copy()
    for i in program.counted:
        name, value = program.variables[i], initial[i]
        if not np.isfinite(value) or value < 0 or abs(value - round(value)) > 1e-6 * max(1.0, abs(value)):
            raise InputError(
                f"species {name!r} starts at {value:g}: stochastic simulation counts molecules, so expected a whole "
                "number, 0 or more. Give amounts in molecules, not in moles or concentrations."
            )
        out[i] = round(value)
    return out
