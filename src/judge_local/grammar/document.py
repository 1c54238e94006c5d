"""One schema document: where its schemas stand, what they are called, and where a reference leads.

* A schema is named by the JSON pointer to it, whichever way it was reached, so that one schema has one name.
* References are resolved inside the document only, by RFC 6901 and RFC 3986: `$id`, `$anchor`, and the `id` of draft 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

from judge_local.errors import excerpt
from judge_local.grammar.dialect import check_meta_schema
from judge_local.grammar.parse import Json, escape_pointer

_ONE: Final = frozenset(
    [
        *("not", "if", "then", "else", "items", "additionalItems", "contains", "additionalProperties"),
        *("propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    ]
)
_MANY: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_NAMED: Final = frozenset(
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]
)
_LEGACY: Final = frozenset(["draft-04", "draft-06", "draft-07"])


class LostReferenceError(Exception):
    """A reference that leads nowhere in the document; the message is a clause that says why."""


class Document:
    """A schema document, indexed."""

    def __init__(self, root: Json, dialect: str) -> None:
        self.root, self.dialect = root, dialect
        self.legacy = dialect in _LEGACY
        """Whether `$ref` hides the keywords beside it."""
        self._bases: dict[str, str] = {}
        self._resources: dict[str, str] = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self.dynamic: dict[str, list[str]] = {}
        """Where each `$dynamicAnchor` stands, by name."""
        self.recursive = False
        """Whether some `$recursiveAnchor` is set."""
        self._values: dict[str, Json] = {}
        self._index(root, "", "")

    def at(self, where: str) -> Json:
        """The value at a pointer that is known to lead somewhere."""
        found = self._values.get(where, self)
        if found is not self:
            return found  # type: ignore[return-value] # `self` is the mark of absence
        value = _walk(self.root, where)
        self._values[where] = value
        return value

    def in_order(self, pointers: Iterable[str]) -> dict[str, int]:
        """The rank of each pointer to a schema in the order of the document; others come last."""
        known = {where: rank for rank, where in enumerate(self._bases)}
        return {where: known.get(where, len(known)) for where in pointers}

    def resolve(self, where: str, reference: str) -> str:
        """The pointer to the schema that `reference`, standing in the schema at `where`, leads to.

        Raises:
            LostReferenceError: it leads nowhere, or out of the document.
            InvalidSchemaError: what it leads to is no schema.
        """
        base = self._base(where)
        uri, fragment = urldefrag(urljoin(base, reference) if base else reference)
        resource = self._resources.get(uri)
        if resource is None:
            raise LostReferenceError(
                f"{excerpt(reference)} leads out of the document, and nothing is fetched"
            )
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            anchor = self._anchors.get((uri, fragment))
            if anchor is None:
                raise LostReferenceError(f"there is no anchor {excerpt(fragment)}")
            return anchor
        target = resource + fragment
        try:
            value = _walk(self.root, target)
        except LookupError:
            raise LostReferenceError(f"{excerpt(reference)} leads nowhere in this document") from None
        target = _normal(target)
        if target not in self._bases:
            # Nobody has looked at a schema that stands where no keyword expects one.
            check_meta_schema(value, self.dialect)
            self._index(value, target, self._base(target))
        return target

    def resolve_dynamic(self, where: str, keyword: str, reference: str) -> str:
        """The pointer to the one schema that a dynamic reference can lead to.

        Raises:
            LostReferenceError: it leads to different ones on different ways, or nowhere.
            InvalidSchemaError: what it leads to is no schema.
        """
        target = self.resolve(where, reference)
        fragment = unquote(urldefrag(reference)[1])
        if keyword == "$recursiveRef":
            moves = self.recursive
        else:
            moves = target in self.dynamic.get(fragment, ()) and len(self.dynamic[fragment]) > 1
        if moves:
            raise LostReferenceError(f"{excerpt(reference)} may lead to another schema on each way to it")
        return target

    def _base(self, where: str) -> str:
        while where not in self._bases and where:
            where = where.rpartition("/")[0]
        return self._bases.get(where, "")

    def _index(self, value: Json, where: str, base: str) -> None:
        if where in self._bases:
            return
        self._values[where] = value
        if isinstance(value, dict):
            base = self._named(value, where, base)
        self._bases[where] = base
        if isinstance(value, dict):
            for step, inner in _inside(value):
                self._index(inner, f"{where}/{step}", base)

    def _named(self, schema: dict[str, Json], where: str, base: str) -> str:
        """The base URI inside `schema`, whose names are noted."""
        self.recursive = self.recursive or schema.get("$recursiveAnchor") is True
        name = schema.get("id" if self.dialect == "draft-04" else "$id")
        hidden = self.legacy and "$ref" in schema
        if isinstance(name, str) and not hidden:
            uri, fragment = urldefrag(urljoin(base, name))
            if self.legacy and name.startswith("#"):
                self._anchors[base, fragment] = where
            else:
                base = uri
                self._resources.setdefault(base, where)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str) and not self.legacy:
                self._anchors.setdefault((base, anchor), where)
                if keyword == "$dynamicAnchor":
                    self.dynamic.setdefault(anchor, []).append(where)
        return base


def _inside(schema: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """The schemas that stand in `schema`, with the steps to them."""
    for keyword, value in schema.items():
        if keyword in _ONE and isinstance(value, dict | bool):
            yield keyword, value
        elif keyword in _MANY and isinstance(value, list):
            yield from ((f"{keyword}/{index}", inner) for index, inner in enumerate(value))
        elif keyword in _NAMED and isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, dict | bool):
                    yield f"{keyword}/{escape_pointer(name)}", inner


def _walk(value: Json, pointer: str) -> Json:
    for escaped in pointer.split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and step == str(int(step)):
            value = value[int(step)]
        else:
            raise LookupError(step)
    return value


def _normal(pointer: str) -> str:
    """The one spelling of a pointer."""
    steps = pointer.split("/")
    return "/".join(escape_pointer(step.replace("~1", "/").replace("~0", "~")) for step in steps)
