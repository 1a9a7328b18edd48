"""Expressions: formulas of rates, rules and triggers as plain trees, evaluated on numbers or arrays."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from .._errors import InputError


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True)
class Symbol:
    """The value of a species, a parameter, or time."""

    name: str


@dataclass(frozen=True)
class Apply:
    """An operator or function of other expressions.

    "piecewise" has the arguments value, condition, value, condition, …, and last the value where no condition holds.
    """

    operator: str
    arguments: tuple["Expression", ...]


Expression: TypeAlias = Number | Symbol | Apply
# No identifier of SBML or Python has this form, so a model may call something else "time".
TIME = Symbol("$time")

RELATIONS = ("<", "<=", ">", ">=", "==", "!=")


def symbols(expression: Expression) -> set[str]:
    """The names that a formula reads."""
    return {node.name for node in walk(expression) if isinstance(node, Symbol)}


def walk(expression: Expression) -> Iterator[Expression]:
    """The formula and all its parts."""
    yield expression
    if isinstance(expression, Apply):
        for argument in expression.arguments:
            yield from walk(argument)


def transform(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The formula with every part changed, from the leaves up."""
    if isinstance(expression, Apply):
        arguments = tuple(transform(a, change) for a in expression.arguments)
        expression = Apply(expression.operator, arguments)
    return change(expression)


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """The formula with formulas put in for names; what is put in is not looked at again."""
    return transform(expression, lambda e: values.get(e.name, e) if isinstance(e, Symbol) else e)


# Evaluation


@dataclass
class Environment:
    """The values of names: some are given, some follow from rules, which are evaluated when they are first read."""

    values: dict[str, Any]
    rules: Mapping[str, Expression] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    def read(self, name: str, xp: Any) -> Any:
        if name not in self.values:
            if name not in self.rules:
                raise InputError(f"the formula of a rate, rule or event names {name!r}, which has no value.")
            if name in self._open:
                cycle = " -> ".join([*self._open[self._open.index(name) :], name])
                raise InputError(f"rules and initial values that need each other: {cycle}.")
            self._open.append(name)
            self.values[name] = evaluate(self.rules[name], self, xp)
            self._open.pop()
        return self.values[name]


def evaluate(expression: Expression, environment: Environment, xp: Any = jnp) -> Any:
    """The value of a formula, with jax.numpy or, on the host and in double precision, with numpy."""
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Symbol):
        return environment.read(expression.name, xp)
    name = expression.operator
    if name == "^":
        return _power(expression.arguments[0], expression.arguments[1], environment, xp)
    values = [evaluate(a, environment, xp) for a in expression.arguments]
    if name == "piecewise":
        return _piecewise(values, xp)
    if name in _LOGIC:
        return _LOGIC[name](xp, *values)
    return _OPERATORS[name](xp, *(_as_number(v, xp) for v in values))


def holds(expression: Expression, environment: Environment) -> Any:
    """Whether a condition is true; numbers are where they are not zero."""
    value = jnp.asarray(evaluate(expression, environment))
    return value if value.dtype == np.bool_ else value != 0


def _as_number(x: Any, xp: Any) -> Any:
    """Truth values count as 0 and 1 where a number is expected."""
    if isinstance(x, bool):
        return float(x)
    return xp.where(x, 1.0, 0.0) if getattr(x, "dtype", None) == np.bool_ else x


def _power(base: Expression, exponent: Expression, environment: Environment, xp: Any) -> Any:
    x = _as_number(evaluate(base, environment, xp), xp)
    # Small whole powers are products: quicker than a logarithm, and right for negative bases.
    if isinstance(exponent, Number) and exponent.value == round(exponent.value) and abs(exponent.value) <= 16:
        n = int(exponent.value)
        return x**n if n >= 0 else 1.0 / x**-n
    return xp.power(x, _as_number(evaluate(exponent, environment, xp), xp))


def _piecewise(values: list[Any], xp: Any) -> Any:
    # What no condition covers has no value.
    out = _as_number(values[-1], xp) if len(values) % 2 else math.nan
    pairs = list(zip(values[0 : len(values) - 1 : 2], values[1::2], strict=True))
    for value, condition in reversed(pairs):
        out = xp.where(condition, _as_number(value, xp), out)
    return out


def _sum(xp: Any, *x: Any) -> Any:
    return sum(x[1:], start=x[0]) if x else 0.0


def _reduce(name: str) -> Callable[..., Any]:
    def apply(xp: Any, *x: Any) -> Any:
        out = x[0]
        for other in x[1:]:
            out = getattr(xp, name)(out, other)
        return out

    return apply


def _chain(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Relations of several arguments hold where each neighbouring pair does."""

    def apply(xp: Any, *x: Any) -> Any:
        out = compare(x[0], x[1])
        for left, right in itertools.pairwise(x[1:]):
            out = xp.logical_and(out, compare(left, right))
        return out

    return apply


def _function(name: str) -> Callable[..., Any]:
    return lambda xp, x: getattr(xp, name)(x)


def _factorial(xp: Any, x: Any) -> Any:
    return xp.exp(scipy.special.gammaln(x + 1.0) if xp is np else jax.scipy.special.gammaln(x + 1.0))


_UNARY = (
    "exp", "log10", "sqrt", "abs", "floor", "ceil", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
    "tanh", "arcsinh", "arccosh", "arctanh",
)  # fmt: skip
_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": _sum,
    "-": lambda xp, x, *y: x - y[0] if y else -x,
    "*": lambda xp, *x: math.prod(x),
    "/": lambda xp, x, y: x / y,
    "min": _reduce("minimum"),
    "max": _reduce("maximum"),
    "root": lambda xp, n, x: xp.sqrt(x) if isinstance(n, float) and n == 2 else xp.power(x, 1.0 / n),
    "log": lambda xp, *x: xp.log(x[-1]) / xp.log(x[0]) if len(x) == 2 else xp.log(x[0]),
    "factorial": _factorial,
    "quotient": lambda xp, x, y: xp.trunc(x / y),
    "rem": lambda xp, x, y: x - y * xp.trunc(x / y),
    "sec": lambda xp, x: 1.0 / xp.cos(x),
    "csc": lambda xp, x: 1.0 / xp.sin(x),
    "cot": lambda xp, x: 1.0 / xp.tan(x),
    "<": _chain(lambda x, y: x < y),
    "<=": _chain(lambda x, y: x <= y),
    ">": _chain(lambda x, y: x > y),
    ">=": _chain(lambda x, y: x >= y),
    "==": _chain(lambda x, y: x == y),
    "!=": lambda xp, x, y: x != y,
    "ln": _function("log"),
    **{name: _function(name) for name in _UNARY},
}

_LOGIC: dict[str, Callable[..., Any]] = {
    "and": lambda xp, *x: _reduce("logical_and")(xp, True, *x),
    "or": lambda xp, *x: _reduce("logical_or")(xp, False, *x),
    "xor": lambda xp, *x: _reduce("logical_xor")(xp, False, *x),
    "not": lambda xp, x: xp.logical_not(x),
    "implies": lambda xp, x, y: xp.logical_or(xp.logical_not(x), y),
}

# How many arguments: of the functions that are not here, one or more.
ARITY = {name: (1,) for name in (*_UNARY, "ln", "factorial", "sec", "csc", "cot", "not")} | {
    name: (2,) for name in ("/", "^", "root", "quotient", "rem", "implies", "!=")
} | {"-": (1, 2), "log": (1, 2)}  # fmt: skip
FUNCTIONS = frozenset(_OPERATORS) | frozenset(_LOGIC) | {"^", "piecewise"}
