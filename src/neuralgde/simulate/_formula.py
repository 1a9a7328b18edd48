"""Formulas written as text, read into expressions: a small part of Python's syntax, and nothing is ever executed."""

import ast

from .._errors import InputError, unknown_name
from ._expression import ARITY, FUNCTIONS, Apply, Expression, Number, Symbol

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "^"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_NAMES = tuple(sorted(name for name in FUNCTIONS if name.isidentifier()))


def parse_formula(text: str) -> Expression:
    """An expression such as "k * P * (P - 1) / 2", "time >= 10 and X < 5" or "piecewise(a, X > 3, b)".

    `^` is a power, as `**` is.
    """
    try:
        tree = ast.parse(text.replace("^", "**").strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise InputError(f"formula {text!r}: expected an expression such as 'k * X', and it cannot be read.") from error
    return _convert(tree.body, text)


def _convert(node: ast.AST, text: str) -> Expression:
    def all_of(nodes) -> tuple[Expression, ...]:
        return tuple(_convert(n, text) for n in nodes)

    match node:
        case ast.Constant(value=bool() as value):
            return Number(float(value))
        case ast.Constant(value=int() | float() as value):
            return Number(float(value))
        case ast.Name(id=name):
            return Symbol(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return Apply(_BINARY[type(op)], all_of([left, right]))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Apply("-", all_of([operand]))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _convert(operand, text)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Apply("not", all_of([operand]))
        case ast.BoolOp(op=op, values=values):
            return Apply("and" if isinstance(op, ast.And) else "or", all_of(values))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            terms = all_of([left, *others])
            parts = [Apply(_COMPARE[type(op)], terms[i : i + 2]) for i, op in enumerate(ops)]
            return parts[0] if len(parts) == 1 else Apply("and", tuple(parts))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in FUNCTIONS:
                raise InputError(f"formula {text!r}: {unknown_name('function', name, _NAMES)}")
            if len(arguments) not in ARITY.get(name, range(1, len(arguments) + 1)):
                counts = " or ".join(str(n) for n in ARITY.get(name, ("some",)))
                raise InputError(f"formula {text!r}: {name} takes {counts} argument(s), got {len(arguments)}.")
            return Apply(name, all_of(arguments))
    raise InputError(f"formula {text!r}: {ast.unparse(node)!r} has no meaning in a formula.")
