"""Rules written as a whole grammar, for tests of what writes them."""

from __future__ import annotations

from judge_local.grammar.emit import Body, Extent, Rules
from judge_local.grammar.finish import finish, productive


def written(rules: Rules, body: Body) -> tuple[str, Extent]:
    """The grammar whose texts are those of `body`, and how long they are."""
    root = rules.declare()
    rules.fill(root, [body])
    done = finish(rules, root, productive(rules))
    return done.gbnf, done.extent
