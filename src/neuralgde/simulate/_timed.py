"""Time in formulas: comparisons with time become moments at which a simulation stops and looks."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from .._errors import InputError
from ._expression import RELATIONS, TIME, Apply, Expression, Number, Symbol, substitute, symbols, transform, walk

# The time of the last stop, and whether it is just past: between two stops no comparison with time changes.
CLOCK = Symbol("$clock")
LATE = Symbol("$late")
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def inline_time(formula: Expression, rules: Mapping[str, Expression]) -> Expression:
    """The formula with the rules put in that depend on time, directly or through others."""
    timed: dict[str, Expression] = {}
    for _ in range(len(rules) + 1):
        new = {
            name: substitute(rule, timed)
            for name, rule in rules.items()
            if TIME.name in symbols(substitute(rule, timed))
        }
        if new == timed:
            break
        timed = new
    return substitute(formula, timed)


def lift_comparisons(
    formula: Expression, constant: Callable[[Expression], float | None], where: str
) -> tuple[Expression, list[Expression]]:
    """The formula with each comparison with time put in terms of the clock, and the moments they turn at.

    `constant` gives the value of a formula that never changes, or None.
    """
    moments: list[Expression] = []

    def change(part: Expression) -> Expression:
        if not (isinstance(part, Apply) and part.operator in RELATIONS and TIME.name in symbols(part)):
            return part
        if len(part.arguments) > 2:
            pairs = itertools.pairwise(part.arguments)
            return Apply("and", tuple(change(Apply(part.operator, pair)) for pair in pairs))
        line = _line(Apply("-", part.arguments), constant)
        if line is None:
            raise InputError(
                f"{where}: it compares time in a way that is not supported. Supported are comparisons in which time "
                "stands alone or times a constant, such as time >= 10 or time - start < 2."
            )
        offset, slope = line
        if slope == 0:
            return part
        moment = Apply("/", (Apply("-", (offset,)), Number(slope)))
        moments.append(moment)
        return _compared(part.operator if slope > 0 else _SWAPPED[part.operator], moment)

    return transform(formula, change), moments


def check_time_lifted(formula: Expression, where: str) -> None:
    """That time is only compared, so that nothing changes continuously between two stops."""
    if any(part == TIME for part in walk(formula)):
        raise InputError(
            f"{where}: it depends on time continuously, which stochastic simulation does not support. Supported are "
            "comparisons with time, such as piecewise(1, time < 10, 2)."
        )


def _compared(relation: str, moment: Expression) -> Expression:
    since = Apply(">=", (CLOCK, moment))
    passed = Apply("or", (Apply(">", (CLOCK, moment)), Apply("and", (LATE, since))))
    at = Apply("and", (Apply("not", (LATE,)), Apply("==", (CLOCK, moment))))
    return {
        ">=": since,
        ">": passed,
        "<": Apply("not", (since,)),
        "<=": Apply("not", (passed,)),
        "==": at,
        "!=": Apply("not", (at,)),
    }[relation]


def _line(formula: Expression, constant: Callable[[Expression], float | None]) -> tuple[Expression, float] | None:
    """(a, b) where the formula is a + b t; None where it is no line in t."""
    if TIME.name not in symbols(formula):
        return formula, 0.0
    if formula == TIME:
        return Number(0.0), 1.0
    assert isinstance(formula, Apply)
    lines = [_line(a, constant) for a in formula.arguments]
    if any(line is None for line in lines):
        return None
    parts: Any = lines
    offsets, slopes = tuple(a for a, _ in parts), [b for _, b in parts]
    if formula.operator in ("+", "-"):
        total = sum(slopes) if formula.operator == "+" else (-slopes[0] if len(slopes) == 1 else slopes[0] - slopes[1])
        return Apply(formula.operator, offsets), total
    if formula.operator == "*" and sum(b != 0 for b in slopes) == 1:
        timed = next(i for i, b in enumerate(slopes) if b)
        factor = constant(Apply("*", tuple(a for i, a in enumerate(formula.arguments) if i != timed)))
        return None if factor is None else (Apply("*", (Number(factor), offsets[timed])), factor * slopes[timed])
    if formula.operator == "/" and slopes[1] == 0:
        divisor = constant(formula.arguments[1])
        return None if divisor is None else (Apply("/", (offsets[0], Number(divisor))), slopes[0] / divisor)
    return None
