"""Every single edit of a file that the operators below make: from its AST, written into its own text.

`ast` of the standard library is enough: an edit replaces the text between two positions that the tree gives, so that
comments and layout stay and no printer of syntax trees (libcst) is needed. mutmut and cosmic-ray exchange operators and
constants; the faults of this library are others, and neither has an edit for them: a wake-up, an fsync or a permit left
out or given twice, a line moved across an await, a field of an image, an exception path without its release.

Not edited: texts (messages, reports, logging), events (the follower would notice each at once, which says little), type
declarations, and whatever runs while a module is imported.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

SILENT = re.compile("describe|statistics|__repr__|__str__|.*in_words|_named|narrate|explain.*|_tell_tracer")
"""Functions that make texts, figures and events."""
LOGGERS = {"logger", "_log", "laps", "figures"}
IMAGE = re.compile(
    ".*(snapshot|document|image|_state|capture|manifest|header|counters|to_json).*|state|read|of_[a-z_]+|restored?"
)
"""Functions whose dictionaries and records are what a checkpoint holds."""
WAKING = {"wake", "set_result", "set_exception", "set", "notify", "notify_all", "reschedule"}
RELEASING = {"give_back", "return_place", "return_permit", "release", "leave", "withdraw", "release_unready"}
SYNCING = {"fsync", "fsync_dir", "flush"}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OTHER_END = {"popleft": "pop", "appendleft": "append", "min": "max", "max": "min", "any": "all", "all": "any"}
Block = list[ast.stmt]


@dataclass(frozen=True)
class Mutant:
    """One edit. It is called by what is edited, not by where it stands, so that a name outlives other edits."""

    path: str
    function: str
    operator: str
    before: str
    after: str
    start: int
    end: int
    """Positions in the text, in characters."""
    line: int
    """Of the statement that has to run for the edit to matter."""
    around: tuple[int, int]
    """Where the function begins and ends, its first line whole."""
    refusal: bool = False
    """Whether it is part of what refuses a wrong use: a run that makes no mistake never needs it."""
    number: int = 0
    """Which of several edits in this function that read the same."""

    @property
    def key(self) -> str:
        """The name: the same as long as the function has this text."""
        again = f" ({self.number + 1})" if self.number else ""
        return f"{self.path}:{self.function}: {self.operator}: {_short(self.before)} -> {_short(self.after)}{again}"

    def applied_to(self, text: str) -> str:
        """The text with the edit."""
        assert text[self.start : self.end] == self.before, f"{self.key} was made of another text"
        return text[: self.start] + self.after + text[self.end :]

    def is_another_program(self, text: str) -> bool:
        """Whether the function compiles, and not to the same."""
        first, last = self.around
        # A method stays indented as it is.
        within = "if True:\n" if text[first].isspace() else ""
        original = within + text[first:last]
        changed = f"{within}{text[first : self.start]}{self.after}{text[self.end : last]}"
        try:
            compile(changed, self.path, "exec", dont_inherit=True)
        except SyntaxError:
            return False
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(original))


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Every mutant of one file, in the order of its text. Each is a program that compiles and reads otherwise."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    places: set[tuple[int, int, str]] = set()
    for mutant in sorted(_Reader(path, text).mutants(), key=lambda mutant: (mutant.start, mutant.end, mutant.operator)):
        place = (mutant.start, mutant.end, mutant.after)
        if place in places or not mutant.is_another_program(text):
            continue
        places.add(place)
        found.append(replace(mutant, number=seen[mutant.key]))
        seen[mutant.key] += 1
    return found


def _short(text: str) -> str:
    """One line of it, long enough to be found again."""
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:80]} … {line[-76:]}"


class _Reader:
    """Goes through the functions of one text."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.function = ""
        self.around = (0, 0)
        self.raising = False

    def mutants(self) -> Iterator[Mutant]:
        """Every edit, whether it compiles or not."""
        tree = ast.parse(self.text)
        yield from self._definitions(tree.body, "")

    def _definitions(self, body: Sequence[ast.stmt], within: str) -> Iterator[Mutant]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self._definitions(node.body, f"{within}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not SILENT.fullmatch(node.name):
                self.function = within + node.name
                self.around = (self.starts[node.lineno - 1], self.starts[(node.end_lineno or node.lineno)])
                yield from self._block(_without_docstring(node.body))

    # -- the text

    def _position(self, line: int, column: int) -> int:
        # Columns of the tree count bytes.
        before = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(before)

    def _span(self, first: ast.AST, last: ast.AST | None = None) -> tuple[int, int]:
        last = first if last is None else last
        start = self._position(first.lineno, first.col_offset)  # type: ignore[attr-defined]
        return start, self._position(last.end_lineno, last.end_col_offset)  # type: ignore[attr-defined]

    def _source(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.text[start:end]

    def _edit(self, operator: str, span: tuple[int, int], after: str, statement: ast.stmt) -> Mutant:
        before = self.text[slice(*span)]
        refusal = self.raising or _refuses(statement)
        return Mutant(self.path, self.function, operator, before, after, *span, statement.lineno, self.around, refusal)

    # -- statements

    def _block(self, body: Block) -> Iterator[Mutant]:
        for statement in body:
            if _is_text(statement):
                continue
            yield from self._statement(statement)
            yield from self._inside(statement)
        for first, second in pairwise(body):
            yield from self._neighbours(first, second)

    def _inside(self, statement: ast.stmt) -> Iterator[Mutant]:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            outside, self.function = self.function, f"{self.function}.{statement.name}"
            yield from self._block(_without_docstring(statement.body))
            self.function = outside
            return
        if isinstance(statement, ast.ClassDef):
            return
        raising, self.raising = self.raising, self.raising or _refuses(statement)
        for field in ("body", "orelse", "finalbody"):
            yield from self._block(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from self._block(handler.body)
        for case in getattr(statement, "cases", []):
            yield from self._block(case.body)
        self.raising = raising

    def _statement(self, statement: ast.stmt) -> Iterator[Mutant]:
        if isinstance(statement, ast.If | ast.While):
            yield from self._guard(statement)
        elif _is_effect(statement):
            yield from self._effect(statement)
        elif isinstance(statement, ast.Try):
            yield from self._exception_path(statement)
        elif isinstance(statement, ast.Return) and isinstance(statement.value, ast.Constant):
            if isinstance(statement.value.value, bool):
                after = str(not statement.value.value)
                yield self._edit("the other answer", self._span(statement.value), after, statement)
        elif isinstance(statement, ast.Break):
            yield self._edit("goes on", self._span(statement), "continue", statement)
        if isinstance(statement, ast.AsyncWith | ast.With) and len(statement.items) == 1:
            yield from self._section(statement)
        for expression in _expressions_of(statement):
            yield from self._expression(expression, statement)

    def _guard(self, statement: ast.If | ast.While) -> Iterator[Mutant]:
        test = statement.test
        if isinstance(test, ast.Constant) or self._source(test).endswith("TYPE_CHECKING"):
            return
        if isinstance(statement, ast.While):
            # Looks once instead of until it is so: the wake-up that is for somebody else.
            start = self._span(statement)[0]
            once = any(isinstance(node, ast.Await) for node in ast.walk(statement))
            if once and not any(isinstance(node, ast.Break | ast.Continue) for node in ast.walk(statement)):
                yield self._edit("looks once", (start, start + len("while")), "if", statement)
            return
        yield self._edit("guard dropped", self._span(test), "False" if _leaves(statement) else "True", statement)
        if not _leaves(statement) and not _only_text(statement.body):
            yield self._edit("never", self._span(test), "False", statement)

    def _effect(self, statement: ast.stmt) -> Iterator[Mutant]:
        name = _called(statement)
        kind = "left out"
        for names, kept in ((SYNCING, "fsync left out"), (WAKING, "wake-up left out"), (RELEASING, "not given back")):
            kind = kept if name in names else kind
        # What is not set at the start is missed at once: that would say nothing.
        if not (self.function.endswith("__init__") and isinstance(statement, ast.Assign)):
            yield self._edit(kind, self._span(statement), "pass", statement)
        if name in RELEASING and isinstance(statement, ast.Expr):
            source = self._source(statement)
            yield self._edit("given back twice", self._span(statement), f"({source}, {source})", statement)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub):
            end = self._span(statement.target)[1]
            start = self.text.index("+=" if isinstance(statement.op, ast.Add) else "-=", end)
            other = "-=" if isinstance(statement.op, ast.Add) else "+="
            edit = self._edit("counts the other way", (start, start + 2), other, statement)
            yield _told_with(edit, self._span(statement), self.text)

    def _exception_path(self, statement: ast.Try) -> Iterator[Mutant]:
        if statement.finalbody and not _only_text(statement.finalbody):
            # The same as long as nothing goes wrong and nothing returns early.
            start, end = self._span(statement)
            last: Sequence[ast.AST] = statement.orelse or statement.handlers or statement.body
            keyword = self.text.index("finally:", self._span(last[-1])[1])
            text = self.text[start:keyword] + "if True:" + self.text[keyword + len("finally:") : end]
            if not statement.handlers:
                text = "if True:" + text.removeprefix("try:")
            yield self._edit("exception path without its release", (start, end), text, statement.finalbody[0])
        for handler in statement.handlers:
            kept = [node for node in handler.body if not _is_text(node)]
            if len(kept) > 1 and isinstance(kept[-1], ast.Raise) and kept[-1].exc is None:
                span = self._span(handler.body[0], handler.body[-1])
                yield self._edit("exception path without its release", span, "raise", handler.body[0])

    def _section(self, statement: ast.AsyncWith | ast.With) -> Iterator[Mutant]:
        """A line of a section before its beginning, or after its end."""
        if len(statement.body) < 2 or isinstance(statement, ast.With):
            return
        indent, inner = " " * statement.col_offset, " " * statement.body[0].col_offset
        first, last = statement.body[0], statement.body[-1]
        header = self.text[self._span(statement)[0] : self._span(first)[0]]
        bound = _stored(statement.items[0])
        if _is_effect(first) and not bound & _names(first):
            rest = self.text[self._span(statement.body[1])[0] : self._span(statement)[1]]
            text = f"{self._source(first)}\n{indent}{header}{rest}"
            yield self._edit("moved before the section", self._span(statement), text, first)
        if _is_effect(last):
            body = self.text[self._span(first)[0] : self._span(statement.body[-2])[1]]
            text = f"{header}{body}\n{indent}{self._source(last)}"
            yield self._edit(
                "moved after the section", self._span(statement), text.replace(inner + indent, inner), last
            )

    def _neighbours(self, first: ast.stmt, second: ast.stmt) -> Iterator[Mutant]:
        """Two statements exchanged: two effects, or one and what awaits.

        Not what prepares an object, not two refusals (a call that is wrong twice gets the other error), and not a
        wake-up among statements that await nothing: whom it wakes runs later.
        """
        if (
            self.function.endswith("__init__")
            or (_refuses(first) and _refuses(second))
            or _is_text(first)
            or _is_text(second)
            or not all(map(_is_simple, (first, second)))
        ):
            return
        awaits = _awaits(first), _awaits(second)
        effects = _is_effect(first), _is_effect(second)
        if not any(effects) or not (all(effects) or any(awaits)):
            return
        if _stored(first) & _names(second):
            return  # what is not there yet is a NameError, and no fault that anybody makes
        if not any(awaits) and (_independent(first, second) or {_called(first), _called(second)} & WAKING):
            return
        operator = "moved across an await" if any(awaits) else "exchanged"
        between = self.text[self._span(first)[1] : self._span(second)[0]]
        text = f"{self._source(second)}{between}{self._source(first)}"
        yield self._edit(operator, self._span(first, second), text, first)

    # -- expressions

    def _expression(self, expression: ast.expr, statement: ast.stmt) -> Iterator[Mutant]:
        for node in _without_texts(expression):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield from self._comparison(node, statement)
            elif isinstance(node, ast.BoolOp):
                yield from self._conjuncts(node, statement)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                yield self._edit("not left out", self._span(node), self._source(node.operand), statement)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                if isinstance(node.right, ast.Constant) and node.right.value == 1:
                    yield self._edit("off by one", self._span(node), self._source(node.left), statement)
            elif isinstance(node, ast.Call):
                yield from self._call(node, statement)
            elif isinstance(node, ast.Dict) and IMAGE.fullmatch(self.function.rpartition(".")[2]):
                yield from self._entries(node, statement)

    def _comparison(self, node: ast.Compare, statement: ast.stmt) -> Iterator[Mutant]:
        other = COMPARISONS[type(node.ops[0])]
        start, end = self._span(node.left)[1], self._span(node.comparators[0])[0]
        # Parentheses around an operand stay where they are.
        found = re.search(r"not\s+in|is\s+not|[<>=!]=|<|>|\bis\b|\bin\b", self.text[start:end])
        if found is not None:
            span = (start + found.start(), start + found.end())
            edit = self._edit("comparison moved", span, other, statement)
            yield _told_with(edit, self._span(node), self.text)

    def _conjuncts(self, node: ast.BoolOp, statement: ast.stmt) -> Iterator[Mutant]:
        word = "and" if isinstance(node.op, ast.And) else "or"
        for left_out in node.values:
            kept = f" {word} ".join(f"({self._source(value)})" for value in node.values if value is not left_out)
            yield self._edit("a condition left out", self._span(node), f"({kept})", statement)

    def _call(self, node: ast.Call, statement: ast.stmt) -> Iterator[Mutant]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OTHER_END and (name not in ("pop",) or not node.args):
            end = self._span(node.func)[1]
            span = (end - len(name), end)
            yield _told_with(self._edit("the other end", span, OTHER_END[name], statement), self._span(node), self.text)
        if IMAGE.fullmatch(self.function.rpartition(".")[2]) and name[:1].isupper() and not name.endswith("Error"):
            given = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
            for value in [*given, *(word.value for word in node.keywords if word.arg is not None)]:
                if isinstance(value, ast.Constant):
                    continue
                # An empty one of its kind, as a checkpoint would hold that lost it.
                source = self._source(value)
                after = f"(lambda kept: type(kept)())({source})"
                yield self._edit("field left out of an image", self._span(value), after, statement)

    def _entries(self, node: ast.Dict, statement: ast.stmt) -> Iterator[Mutant]:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                continue
            start, end = self._span(key)[0], self._span(value)[1]
            after = re.compile(r"\s*,").match(self.text, end)
            span = (start, after.end() if after else end)
            yield self._edit("field left out of an image", span, "", statement)


def _told_with(edit: Mutant, around: tuple[int, int], text: str) -> Mutant:
    """The same edit with the whole expression as its text: an operator alone says nothing to a reader."""
    before = text[slice(*around)]
    after = text[around[0] : edit.start] + edit.after + text[edit.end : around[1]]
    return replace(edit, before=before, after=after, start=around[0], end=around[1])


# ------------------------------------------------------------------------------------------- what a statement is


def _without_docstring(body: Block) -> Block:
    first = body[0]
    described = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if described else body


def _called(statement: ast.stmt) -> str:
    """The name of what a statement calls, if that is all it does."""
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return ""
    return value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")


def _is_text(statement: ast.stmt) -> bool:
    """Whether it logs, tells an event, or declares something."""
    if isinstance(statement, ast.Expr):
        function = statement.value.func if isinstance(statement.value, ast.Call) else None
        if isinstance(function, ast.Attribute):
            owner = function.value
            return function.attr in ("emit", "_emit", "_trace", "trace") or getattr(owner, "id", "") in LOGGERS
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign):
        # What a stall report says.
        value = statement.value
        return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))
    if isinstance(statement, ast.If):
        # `if self._trace is not None: ...` with nothing but an event in it.
        return _only_text(statement.body) and not statement.orelse
    declares = isinstance(statement, ast.AnnAssign) and statement.value is None
    return declares or isinstance(statement, ast.Assert | ast.Import | ast.ImportFrom | ast.Pass | ast.Nonlocal)


def _only_text(body: Block) -> bool:
    return all(_is_text(statement) for statement in body)


def _is_effect(statement: ast.stmt) -> bool:
    """Whether it changes something that outlives the function's names."""
    if _is_text(statement):
        return False
    if isinstance(statement, ast.Expr):
        value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
        return isinstance(value, ast.Call)
    if isinstance(statement, ast.Assign):
        return any(
            isinstance(part, ast.Attribute | ast.Subscript) for target in statement.targets for part in _parts(target)
        )
    return isinstance(statement, ast.AugAssign | ast.Delete)


def _parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, ast.Tuple) else [target]


def _is_simple(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign | ast.Delete | ast.AnnAssign)


def _awaits(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Await) for node in ast.walk(statement))


def _leaves(statement: ast.If) -> bool:
    last = statement.body[-1]
    return not statement.orelse and isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _refuses(statement: ast.stmt) -> bool:
    """Whether it does nothing but refuse: a check of arguments, or a guard that only raises."""
    if isinstance(statement, ast.If):
        return isinstance(statement.body[-1], ast.Raise) and not statement.orelse
    name = _called(statement)
    return isinstance(statement, ast.Raise) or name.startswith(("require", "_require", "check", "_check", "_refuse"))


def _expressions_of(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement itself, without those of the statements in it, and without what is raised."""
    if isinstance(statement, ast.Raise | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    return [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]


def _without_texts(expression: ast.expr) -> Iterator[ast.expr]:
    """The nodes of an expression that are not part of a text."""
    if isinstance(expression, ast.JoinedStr):
        return
    yield expression
    for child in ast.iter_child_nodes(expression):
        for node in [child.value] if isinstance(child, ast.keyword) else [child]:
            if isinstance(node, ast.expr):
                yield from _without_texts(node)
            elif isinstance(node, ast.comprehension):
                for part in (node.iter, *node.ifs):
                    yield from _without_texts(part)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _stored(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _independent(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two statements without calls touch nothing in common, so that their order is nothing."""
    if any(isinstance(node, ast.Call | ast.Delete) for both in (first, second) for node in ast.walk(both)):
        return False

    def places(node: ast.stmt) -> set[str]:
        read = {ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Attribute | ast.Name)}
        return read - {"self"}

    def targets(node: ast.stmt) -> set[str]:
        given = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        return {ast.unparse(target) for target in given if target is not None}

    return not targets(first) & places(second) and not targets(second) & places(first)
