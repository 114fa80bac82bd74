"""Generated text to machine code: a small translator that builds the body of a numba function.

The text is straight: names, 64-bit numbers and truth values, loops over ranges, `if`, array elements. numba reads any
Python and works out the type of every intermediate value, which takes it minutes for what is thousands of lines here;
this reads only what `source` writes, and refuses the rest. The function is numba's all the same: its calling
convention, its cache, its optimiser. An index outside an array raises IndexError.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

# numba's own building blocks carry no types.
make_array: Final[Any] = arrayobj.make_array
unpack_tuple: Final[Any] = cgutils.unpack_tuple
variable: Final[Any] = cgutils.alloca_once
variable_holding: Final[Any] = cgutils.alloca_once_value

NUMBER: Final = ir.IntType(64)
TRUTH: Final = ir.IntType(1)
COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}


class NotTranslatable(Exception):
    """The text uses something that generated text does not consist of: a fault of the generator."""


def translated(function: Callable[..., Any]) -> Any:
    """An intrinsic of the same parameters whose body is that of the function."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]

    def body(typing_context: Any, *argument_types: Any) -> Any:
        # Read only now that numba has to compile it: what comes from the cache is never read.
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(definition, ast.FunctionDef)
        statements = definition.body

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            typed = zip(signature.args, arguments, strict=True)
            return _Body(context, builder, dict(zip(names, typed, strict=True)))(statements)

        return types.int64(*argument_types), generate

    # numba counts the parameters of an intrinsic, so one of just these names is made.
    made: dict[str, Any] = {"body": body}
    exec(f"def named(typing_context, {', '.join(names)}): return body(typing_context, {', '.join(names)})", made)
    return intrinsic(made["named"])


class _Array:
    """An argument that is an array: where its elements lie, and how many there are."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        structure = make_array(kind)(context, builder, value)
        self.data = structure.data
        self.shape = unpack_tuple(builder, structure.shape)
        if kind.layout != "C":
            raise NotTranslatable(f"{kind} is not contiguous")


class _Body:
    """One function body under construction."""

    def __init__(self, context: Any, builder: Any, arguments: dict[str, tuple[Any, Any]]) -> None:
        self.context = context
        self.builder = builder
        self.names: dict[str, Any] = {}
        self.arrays: dict[str, _Array] = {}
        for name, (kind, value) in arguments.items():
            if isinstance(kind, types.Array):
                self.arrays[name] = _Array(context, builder, kind, value)
            else:
                self.assign(name, context.cast(builder, value, kind, types.int64))
        self.result = variable_holding(builder, ir.Constant(NUMBER, 0))
        self.exit = builder.append_basic_block("exit")

    def __call__(self, statements: list[ast.stmt]) -> Any:
        self.run(statements)
        if not self.builder.block.is_terminated:
            self.builder.branch(self.exit)
        self.builder.position_at_end(self.exit)
        return self.builder.load(self.result)

    # ---------------------------------------------------------------------------------------- Statements

    def run(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                raise NotTranslatable(f"line {statement.lineno} is never reached")
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self.store(node.targets[0], self.value(node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = self.builder.load(self.names[node.target.id])
            self.assign(node.target.id, self.operation(node.op, before, self.value(node.value)))
        elif isinstance(node, ast.If) and not node.orelse:
            with self.builder.if_then(self.value(node.test)):
                self.run(node.body)
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.Return) and node.value is not None:
            self.builder.store(self.value(node.value), self.result)
            self.builder.branch(self.exit)
        else:
            raise NotTranslatable(ast.unparse(node))

    def loop(self, node: ast.For) -> None:
        if not (isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Name)):
            raise NotTranslatable(ast.unparse(node))
        bounds = [self.value(a) for a in node.iter.args]
        first, last = bounds if len(bounds) == 2 else (ir.Constant(NUMBER, 0), bounds[0])
        self.assign(node.target.id, first)
        head, body, after = (self.builder.append_basic_block(name) for name in ("head", "body", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        at = self.builder.load(self.names[node.target.id])
        self.builder.cbranch(self.builder.icmp_signed("<", at, last), body, after)
        self.builder.position_at_end(body)
        self.run(node.body)
        if not self.builder.block.is_terminated:
            self.assign(node.target.id, self.builder.add(at, ir.Constant(NUMBER, 1)))
            self.builder.branch(head)
        self.builder.position_at_end(after)

    def store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Subscript):
            self.builder.store(value, self.place(target))
        else:
            raise NotTranslatable(ast.unparse(target))

    def assign(self, name: str, value: Any) -> None:
        if name not in self.names:
            self.names[name] = variable(self.builder, value.type, name=name)
        self.builder.store(value, self.names[name])

    # --------------------------------------------------------------------------------------- Expressions

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return ir.Constant(TRUTH if isinstance(node.value, bool) else NUMBER, int(node.value))  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return self.builder.load(self.names[node.id])
        if isinstance(node, ast.BinOp):
            return self.operation(node.op, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand)
            return self.builder.not_(inner) if isinstance(node.op, ast.Not) else self.builder.neg(inner)
        if isinstance(node, ast.Compare):
            sign = COMPARISONS[type(node.ops[0])]
            left, right = self.value(node.left), self.value(node.comparators[0])
            # As unsigned, true is more than false.
            compare = self.builder.icmp_unsigned if left.type == TRUTH else self.builder.icmp_signed
            return compare(sign, left, right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("choose"):
            return self.builder.select(*(self.value(a) for a in node.args))
        if isinstance(node, ast.Subscript):
            return self.builder.load(self.place(node))
        raise NotTranslatable(ast.unparse(node))

    def operation(self, operator: ast.operator, left: Any, right: Any) -> Any:
        if left.type != right.type:
            raise NotTranslatable(f"{left.type} {operator} {right.type}")
        return getattr(self.builder, OPERATORS[type(operator)])(left, right)

    def place(self, node: ast.Subscript) -> Any:
        """The address of an array element, once its indexes are known to be inside."""
        if not isinstance(node.value, ast.Name):
            raise NotTranslatable(ast.unparse(node))
        array = self.arrays[node.value.id]
        indexes = [self.value(i) for i in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
        offset = ir.Constant(NUMBER, 0)
        for index, length in zip(indexes, array.shape, strict=True):
            # As unsigned, a negative index is beyond any length.
            with self.builder.if_then(self.builder.icmp_unsigned(">=", index, length), likely=False):
                self.context.call_conv.return_user_exc(self.builder, IndexError, (f"outside: {ast.unparse(node)}",))
            offset = self.builder.add(self.builder.mul(offset, length), index)
        return self.builder.gep(array.data, [offset])
