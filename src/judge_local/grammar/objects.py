"""Nodes as rules: the values of a place, and objects with their keys in one fixed order.

An object takes two bodies a property, so its size is linear in its keys: what may follow when nothing has been written
yet, and what may follow a member. Required and optional properties may stand in any mixture.
"""

from __future__ import annotations

from judge_local.grammar.emit import Body, Rules, join, text
from judge_local.grammar.nodes import Listed, Node, ObjectFacet
from judge_local.grammar.numbers import number
from judge_local.grammar.parse import canonical, string_text
from judge_local.grammar.strings import string

Separators = tuple[str, str]


def value(rules: Rules, node: Node, separators: Separators) -> Body:
    """The body that admits the values of `node`."""
    place = node.pointer or "(root)"
    if isinstance(node, Listed):
        return rules.define((text(canonical(item, separators)) for item in node.values), place)
    ways: list[Body] = []
    if node.object is not None:
        ways.append(_object(rules, node.object, separators, place))
    if node.string is not None:
        ways.append(string(rules, node.string, place))
    if node.number is not None:
        ways.append(number(rules, node.number, place))
    if node.boolean:
        ways += [text("true"), text("false")]
    if node.null:
        ways.append(text("null"))
    return rules.define(ways, place)


def _object(rules: Rules, facet: ObjectFacet, separators: Separators, place: str) -> Body:
    comma, colon = separators
    first: Body = text("}")
    later: Body = text("}")
    for member in reversed(facet.members):
        pair = join(text(string_text(member.name) + colon), value(rules, member.node, separators))
        begun, continued = join(pair, later), join(text(comma), pair, later)
        if member.required:
            first, later = begun, continued
        else:
            comment = f"{place}, from {string_text(member.name)} on"
            first = rules.define([begun, first], comment)
            later = rules.define([continued, later], comment)
    return rules.define([join(text("{"), first)], place)
