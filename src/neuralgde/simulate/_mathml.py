"""Formulas of SBML, as python-libsbml gives them, into expressions."""

from collections.abc import Callable, Mapping
from typing import Any

from ._expression import TIME, Apply, Expression, Number, Symbol, substitute

AVOGADRO = 6.02214179e23  # the value that SBML fixes

_SAME = {
    "PLUS": "+", "MINUS": "-", "TIMES": "*", "DIVIDE": "/", "POWER": "^", "FUNCTION_POWER": "^", "FUNCTION_ABS": "abs",
    "FUNCTION_CEILING": "ceil", "FUNCTION_FLOOR": "floor", "FUNCTION_EXP": "exp", "FUNCTION_LN": "ln",
    "FUNCTION_FACTORIAL": "factorial", "FUNCTION_MIN": "min", "FUNCTION_MAX": "max", "FUNCTION_REM": "rem",
    "FUNCTION_QUOTIENT": "quotient", "FUNCTION_PIECEWISE": "piecewise", "LOGICAL_AND": "and", "LOGICAL_OR": "or",
    "LOGICAL_XOR": "xor", "LOGICAL_NOT": "not", "LOGICAL_IMPLIES": "implies", "RELATIONAL_EQ": "==",
    "RELATIONAL_NEQ": "!=", "RELATIONAL_LT": "<", "RELATIONAL_LEQ": "<=", "RELATIONAL_GT": ">", "RELATIONAL_GEQ": ">=",
    "FUNCTION_SIN": "sin", "FUNCTION_COS": "cos", "FUNCTION_TAN": "tan", "FUNCTION_SEC": "sec", "FUNCTION_CSC": "csc",
    "FUNCTION_COT": "cot", "FUNCTION_SINH": "sinh", "FUNCTION_COSH": "cosh", "FUNCTION_TANH": "tanh",
    "FUNCTION_ARCSIN": "arcsin", "FUNCTION_ARCCOS": "arccos", "FUNCTION_ARCTAN": "arctan",
    "FUNCTION_ARCSINH": "arcsinh", "FUNCTION_ARCCOSH": "arccosh", "FUNCTION_ARCTANH": "arctanh",
}  # fmt: skip
# Functions that are others of 1/x, and functions that are 1 over others.
_OF_INVERSE = {
    "FUNCTION_ARCCSC": "arcsin", "FUNCTION_ARCSEC": "arccos", "FUNCTION_ARCCOT": "arctan",
    "FUNCTION_ARCCSCH": "arcsinh", "FUNCTION_ARCSECH": "arccosh", "FUNCTION_ARCCOTH": "arctanh",
}  # fmt: skip
_INVERSE_OF = {"FUNCTION_SECH": "cosh", "FUNCTION_CSCH": "sinh", "FUNCTION_COTH": "tanh"}
_EMPTY = {"+": 0.0, "*": 1.0, "and": 1.0, "or": 0.0, "xor": 0.0}
_CONSTANTS = {"CONSTANT_PI": 3.141592653589793, "CONSTANT_E": 2.718281828459045, "CONSTANT_TRUE": 1.0,
              "CONSTANT_FALSE": 0.0, "NAME_AVOGADRO": AVOGADRO}  # fmt: skip
# What models use and this package does not have, in words.
_MISSING = {
    "FUNCTION_DELAY": "a delayed value (the csymbol delay)",
    "FUNCTION_RATE_OF": "a derivative (the csymbol rateOf)",
}

Function = tuple[tuple[str, ...], Expression]


class MathReader:
    """Reads formulas. `functions` are those that the model defines; `refuse` raises what is not supported."""

    def __init__(self, libsbml: Any, functions: Mapping[str, Function], refuse: Callable[[str, str], Exception]):
        self._functions = functions
        self._refuse = refuse
        self._libsbml = libsbml
        self._types = {
            getattr(libsbml, name): name.removeprefix("AST_") for name in dir(libsbml) if name.startswith("AST_")
        }

    def read(self, node: Any, where: str) -> Expression:
        """The expression of a formula."""
        if node is None:
            raise self._refuse("a formula that is left out", where)
        kind = self._types.get(node.getType(), "UNKNOWN")
        if kind in ("INTEGER", "REAL", "REAL_E", "RATIONAL"):
            return Number(float(node.getValue()))
        if kind == "NAME":
            return Symbol(node.getName())
        if kind == "NAME_TIME":
            return TIME
        if kind in _CONSTANTS:
            return Number(_CONSTANTS[kind])
        arguments = tuple(self.read(node.getChild(i), where) for i in range(node.getNumChildren()))
        if kind in _SAME:
            return self._apply(_SAME[kind], arguments)
        if kind == "FUNCTION" and node.getName() in self._functions:
            names, body = self._functions[node.getName()]
            return substitute(body, dict(zip(names, arguments, strict=True)))
        if kind in _OF_INVERSE:
            return Apply(_OF_INVERSE[kind], (Apply("/", (Number(1.0), arguments[0])),))
        if kind in _INVERSE_OF:
            return Apply("/", (Number(1.0), Apply(_INVERSE_OF[kind], arguments)))
        if kind == "FUNCTION_ROOT":
            return Apply("root", arguments if len(arguments) == 2 else (Number(2.0), *arguments))
        if kind == "FUNCTION_LOG":
            base, x = arguments if len(arguments) == 2 else (Number(10.0), *arguments)
            return Apply("log10", (x,)) if base == Number(10.0) else Apply("log", (base, x))
        what = _MISSING.get(kind, f"the function {node.getName() or kind.lower()!r}")
        raise self._refuse(f"{what} in {self._libsbml.formulaToL3String(node)}", where)

    def _apply(self, operator: str, arguments: tuple[Expression, ...]) -> Expression:
        if not arguments and operator in _EMPTY:
            return Number(_EMPTY[operator])
        if len(arguments) == 1 and operator in ("+", "*", "and", "or", "xor", "min", "max", "piecewise"):
            return arguments[0]
        return Apply(operator, arguments)
