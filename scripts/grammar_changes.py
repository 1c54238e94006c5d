"""The changes that a proof of the tests makes to the modules of the compiler, one at a time.

* A change flips a comparison, swaps `and` and `or`, drops a `not`, or makes a whole number one more. Decorators are left
  alone: the size of a cache changes no answer.
* Each has a name that says the module, the line of source and the change, and that outlives a change elsewhere.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).resolve().parents[1] / "src" / "judge_local" / "grammar"
_FLIPS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Mutation(NamedTuple):
    """One change to one module."""

    module: str
    number: int
    """Which of the places of the module that can be changed."""
    line: int
    inside: bool
    """Whether it is inside a function."""
    what: str
    """Module, line of source and change in words; it names the mutation in the list of survivors."""


class _Mutator(ast.NodeTransformer):
    """Changes the `wanted`-th place that can be changed, and notes all of them."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted = wanted
        self.places: list[tuple[int, bool, str]] = []
        self._depth = 0

    def _hit(self, node: ast.expr, what: str) -> bool:
        self.places.append((node.lineno, self._depth > 0, what))
        return len(self.places) - 1 == self.wanted

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # ast's own name
        node.args = self.visit(node.args)
        self._depth += 1
        node.body = [self.visit(each) for each in node.body]
        self._depth -= 1
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:  # ast's own name
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            flipped = _FLIPS[type(operator)]
            which = f" at {at + 1}" if at else ""
            if self._hit(node, f"{ast.unparse(node)} flipped{which}"):
                node.ops = [*node.ops[:at], flipped(), *node.ops[at + 1 :]]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:  # ast's own name
        self.generic_visit(node)
        if self._hit(node, f"{ast.unparse(node)[:80]}: and, or swapped"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:  # ast's own name
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._hit(node, f"{ast.unparse(node)[:80]}: not dropped"):
            return node.operand
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:  # ast's own name
        if type(node.value) is int and self._hit(node, f"{node.value} made one more"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node


def mutations(module: str) -> list[Mutation]:
    """Every change to one module, in the order of its source."""
    source = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    lines = source.splitlines()
    mutator = _Mutator()
    mutator.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    found = []
    for number, (line, inside, change) in enumerate(mutator.places):
        what = f"{module}: {lines[line - 1].strip()}: {change}"
        seen[what] += 1
        nth = f" (number {seen[what]})" if seen[what] > 1 else ""
        found.append(Mutation(module, number, line, inside, what + nth))
    return found


def code_of(mutation: Mutation) -> CodeType:
    """The module with the change made."""
    path = PACKAGE / f"{mutation.module}.py"
    tree = _Mutator(mutation.number).visit(ast.parse(path.read_text(encoding="utf-8")))
    return compile(ast.fix_missing_locations(tree), str(path), "exec")
