"""Formulas: what text means, evaluated on the host and in JAX, and how steep a rate is."""

import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.simulate._expression import Environment, evaluate, symbols
from neuralgde.simulate._formula import parse_formula
from neuralgde.simulate._order import rate_orders

X = np.array([0.5, 2.0, 3.0])

CASES = [
    ("2 + 3 * x", 2 + 3 * X),
    ("-x + 1 - 2", -X - 1),
    ("x^2 / 4", X**2 / 4),
    ("x ** -1", 1 / X),
    ("x ^ y", X**1.5),
    ("sqrt(x) + exp(-x) + ln(x) + log(x) + log10(x)", np.sqrt(X) + np.exp(-X) + 2 * np.log(X) + np.log10(X)),
    ("root(3, x)", np.cbrt(X)),
    ("log(2, x)", np.log2(X)),
    ("min(x, y, 1) + max(x, y)", np.minimum(np.minimum(X, 1.5), 1) + np.maximum(X, 1.5)),
    ("factorial(4) + floor(x) + ceil(x) + abs(-x)", 24 + np.floor(X) + np.ceil(X) + X),
    ("rem(7, 3) + quotient(7, 3)", np.full(3, 3.0)),
    ("piecewise(1, x < 1, 2, x < 2.5, 3)", np.array([1.0, 2.0, 3.0])),
    ("piecewise(5, x > 1 and not (x > 2.5 or y > 2), 6)", np.array([6.0, 5.0, 6.0])),
    ("(1 < x < 2.5) * 4", np.array([0.0, 4.0, 0.0])),
    ("sec(x) * cos(x) + tanh(x) + arctan(x)", 1 + np.tanh(X) + np.arctan(X)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), CASES)
def test_values(text, value, x64):
    expression = parse_formula(text)
    host = evaluate(expression, Environment({"x": X, "y": 1.5}), np)
    np.testing.assert_allclose(np.broadcast_to(host, 3), value, rtol=1e-12)
    device = evaluate(expression, Environment({"x": jnp.asarray(X), "y": 1.5}))
    np.testing.assert_allclose(np.broadcast_to(device, 3), value, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("k *", "k *"),
        ("sine(x)", "sin"),
        ("x.real", "x.real"),
        ("__import__('os')", "__import__"),
        ("exp(x, y)", "1 argument"),
        ("'text'", "text"),
    ],
)
def test_bad_text_is_named(text, word):
    with pytest.raises(gde.InputError, match=word.replace("*", r"\*")):
        parse_formula(text)


def test_rules_that_need_each_other_are_told():
    rules = {"a": parse_formula("b + 1"), "b": parse_formula("a")}
    with pytest.raises(gde.InputError, match="a -> b -> a"):
        Environment({}, rules).read("a", np)


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        ("k * x * y", {"k": 1, "x": 1, "y": 1}),
        ("3 * x * (x - 1) / 2", {"x": 2}),
        ("2 + 30 * 40^2 / (40^2 + x^2)", {"x": 2}),
        ("x^4 / (7 + x^4)", {"x": 4}),
        ("x / (1 + x + y)", {"x": 1, "y": 1}),
        ("r * 2", {"x": 2}),
        ("5", {}),
    ],
)
def test_orders_bound_the_steepness(text, orders):
    expression = parse_formula(text)
    found = rate_orders(expression, {"r": parse_formula("x^2")})
    assert found == pytest.approx(orders)
    # Numerically: |d log f / d log x| is no more than the order; x (x - 1) is steeper by what tau-leaping adds itself.
    if text != "3 * x * (x - 1) / 2":
        values = {"k": 2.0, "x": 5.0, "y": 3.0}
        rules = {"r": parse_formula("x^2")}
        for name in symbols(expression) - {"r"}:
            more = {**values, name: values[name] * 1.001}
            before, after = (evaluate(expression, Environment(dict(v), rules), np) for v in (values, more))
            assert abs(np.log(after / before) / np.log(1.001)) <= orders[name] * 1.01
