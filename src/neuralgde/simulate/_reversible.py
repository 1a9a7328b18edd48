"""Reversible reactions: one rate that may be negative, into two that are not."""

from ._expression import Apply, Expression, Number, symbols


def split_rate(rate: Expression, products: set[str]) -> tuple[Expression, Expression] | None:
    """The forward and the backward part of a rate such as V (k1 A - k2 B), B a product; None where there is no such.

    The rate of 2 A -> B may hold a difference too, A (A - 1), which is no backward part: what is taken away has to
    have a product in it.
    """
    terms = _terms(rate)
    forward = [term for sign, term in terms if sign > 0]
    backward = [term for sign, term in terms if sign < 0]
    if not forward or not backward or any(not symbols(term) & products for term in backward):
        return None
    return _sum(forward), _sum(backward)


def _terms(formula: Expression) -> list[tuple[int, Expression]]:
    """The terms of a sum, signs apart, with factors multiplied out where they are sums themselves."""
    if not isinstance(formula, Apply):
        return [(1, formula)]
    arguments = formula.arguments
    match formula.operator:
        case "+":
            return [term for a in arguments for term in _terms(a)]
        case "-":
            last = [(-sign, term) for sign, term in _terms(arguments[-1])]
            return last if len(arguments) == 1 else _terms(arguments[0]) + last
        case "*":
            products: list[tuple[int, Expression]] = [(1, Number(1.0))]
            for a in arguments:
                products = [(s * t, Apply("*", (x, y))) for s, x in products for t, y in _terms(a)]
            return products
        case "/":
            return [(sign, Apply("/", (term, arguments[1]))) for sign, term in _terms(arguments[0])]
    return [(1, formula)]


def _sum(terms: list[Expression]) -> Expression:
    return terms[0] if len(terms) == 1 else Apply("+", tuple(terms))
