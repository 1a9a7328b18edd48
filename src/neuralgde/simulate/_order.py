"""The order of a rate in each species: by what factor a relative change of the species can change the rate."""

from collections.abc import Mapping

from ._expression import Expression, Number, Symbol

# Bounds on d log(formula) / d log(name) for each name, for formulas whose parts are positive.
_Bounds = dict[str, tuple[float, float]]


def rate_orders(formula: Expression, rules: Mapping[str, Expression]) -> dict[str, float]:
    """1 for x, 2 for x y or x^2 in each or x, n for a Hill function of power n."""
    found = _bounds(formula, rules)
    orders = {name: max(abs(low), abs(high)) for name, (low, high) in found.items()}
    return {name: order for name, order in orders.items() if order > 0}


def _bounds(formula: Expression, rules: Mapping[str, Expression]) -> _Bounds:
    if isinstance(formula, Number):
        return {}
    if isinstance(formula, Symbol):
        return _bounds(rules[formula.name], rules) if formula.name in rules else {formula.name: (1.0, 1.0)}
    parts = [_bounds(a, rules) for a in formula.arguments]
    names = list(dict.fromkeys(name for part in parts for name in part))
    none = (0.0, 0.0)
    if formula.operator == "*":
        return {n: (sum(p.get(n, none)[0] for p in parts), sum(p.get(n, none)[1] for p in parts)) for n in names}
    if formula.operator == "/":
        above, below = parts
        return {
            n: (above.get(n, none)[0] - below.get(n, none)[1], above.get(n, none)[1] - below.get(n, none)[0])
            for n in names
        }
    if formula.operator == "^" and isinstance(exponent := formula.arguments[1], Number):
        return {n: _sorted(low * exponent.value, high * exponent.value) for n, (low, high) in parts[0].items()}
    if formula.operator == "piecewise":
        # Conditions switch between values, and nothing bounds that.
        parts = parts[0 : len(parts) - 1 : 2] + ([parts[-1]] if len(parts) % 2 else [])
    # A sum lies between its terms; other functions are taken to be no steeper than what they are of.
    return {n: (min(p.get(n, none)[0] for p in parts), max(p.get(n, none)[1] for p in parts)) for n in names}


def _sorted(a: float, b: float) -> tuple[float, float]:
    return (a, b) if a <= b else (b, a)
