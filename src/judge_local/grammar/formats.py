r"""The formats that are enforced, each as a pattern.

* What is written under a format is taken by the standard that defines it and by the validator that checks answers. Where
  those differ, or where the standard's language is not regular (`regex`), a part that all agree on is written.
* Lengths are bounded only where the standard bounds them.
"""

from __future__ import annotations

from typing import Final

from judge_local.grammar import automata
from judge_local.grammar.automata import Automaton


def _date() -> str:
    month = (
        r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
        r"|02-(?:0[1-9]|1\d|2[0-8]))"
    )
    year = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
    fourth = "(?:0[48]|[2468][048]|[13579][26])"
    return rf"(?:{year}-{month}|(?:\d\d{fourth}|{fourth}00)-02-29)"


def _uri() -> tuple[str, str]:
    """A URI, and an IPv6 address."""
    percent = "%[0-9A-Fa-f]{2}"
    name = r"A-Za-z0-9\-._~!$&'()*+,;="
    character = rf"(?:[{name}:@]|{percent})"
    group = "[0-9A-Fa-f]{1,4}"
    pair = f"(?:{group}:{group}|{_IPV4})"
    forms = [f"(?:{group}:){{6}}{pair}", f"::(?:{group}:){{5}}{pair}"]
    for left in range(5):
        before = f"(?:(?:{group}:){{0,{left}}}{group})?"
        forms.append(f"{before}::" + (f"(?:{group}:){{{4 - left}}}" if left < 4 else "") + pair)
    forms.append(f"(?:(?:{group}:){{0,5}}{group})?::{group}")
    forms.append(f"(?:(?:{group}:){{0,6}}{group})?::")
    address = f"(?:{'|'.join(forms)})"
    authority = rf"(?:(?:[{name}:]|{percent})*@)?(?:\[{address}\]|(?:[{name}]|{percent})*)(?::\d*)?"
    path = rf"(?://{authority}(?:/{character}*)*|/(?:{character}+(?:/{character}*)*)?|{character}+(?:/{character}*)*)?"
    tail = rf"(?:{character}|[/?])*"
    return rf"[A-Za-z][A-Za-z0-9+\-.]*:{path}(?:\?{tail})?(?:#{tail})?", address


def _template() -> str:
    percent = "%[0-9A-Fa-f]{2}"
    literal = r"[!#$&(-;=?-\[\]_a-z~\xA0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF]"
    name = r"\w+(?:\.\w+)*"
    variable = rf"{name}(?::[1-9]\d{{0,2}}|\*)?"
    return rf"(?:{literal}|{percent}|\{{[+#./;?&]?{variable}(?:,{variable})*\}})*"


def _regex() -> str:
    letter = r"[A-Za-z0-9 _,:;=!@#%&\"'<>/~`\-]"
    escape = r"\\[dDwWsS.\\/^$*+?()\[\]{}|]"
    members = r"\[\^?(?:a-z|A-Z|0-9|[A-Za-z0-9_.,:;=!@#%/ ]|\\[dws])+\]"
    atom = rf"(?:{letter}|{escape}|\.|{members})(?:[*+?]|\{{\d\}})?"
    group = rf"\((?:\?:)?{atom}(?:{atom})*(?:\|{atom}(?:{atom})*)*\)[*+?]?"
    return rf"\^?(?:{atom}|{group})*\$?"


_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4: Final = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_TIME: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:[Zz]|[+\-](?:[01]\d|2[0-3]):[0-5]\d)"
_COUNT: Final = r"\d{1,9}"
_CLOCK: Final = rf"T(?:{_COUNT}H(?:{_COUNT}M(?:{_COUNT}S)?)?|{_COUNT}M(?:{_COUNT}S)?|{_COUNT}S)"
_LOCAL: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
# Seven labels of at most 31 characters stay below the 253 that a host name may have.
_SHORT_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,29}[A-Za-z0-9])?"
_HEX: Final = "[0-9A-Fa-f]"
_URI, _IPV6 = _uri()

_LOWER: Final = {
    "date": _date(),
    "time": _TIME,
    "date-time": rf"{_date()}[Tt]{_TIME}",
    "duration": (
        rf"P(?:{_COUNT}W|(?:{_COUNT}Y(?:{_COUNT}M(?:{_COUNT}D)?)?|{_COUNT}M(?:{_COUNT}D)?|{_COUNT}D)(?:{_CLOCK})?"
        rf"|{_CLOCK})"
    ),
    "email": rf"{_LOCAL}(?:\.{_LOCAL})*@{_LABEL}(?:\.{_LABEL})*",
    "hostname": rf"{_SHORT_LABEL}(?:\.{_SHORT_LABEL}){{0,6}}",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uuid": rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "uri-template": _template(),
    "json-pointer": r"(?:/(?:[^~/]|~[01])*)*",
    "regex": _regex(),
}
_COMPACT: Final = {
    "uri": r"[A-Za-z][A-Za-z0-9+\-.]*:(?://[A-Za-z0-9\-.]+)?(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@][A-Za-z0-9\-._~!$&'()*+,;=:@/]*)?"
    r"(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*)?(?:#[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*)?",
}
_UPPER: Final = {
    "date": r"^\d{4}-\d{2}-\d{2}$",
    "time": r"^\d{2}:\d{2}",
    "date-time": r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:",
    "duration": "^[Pp]",
    "email": "@",
    "ipv4": r"^\d{1,3}(?:\.\d{1,3}){3}$",
    "ipv6": ":",
    "uri": "^[A-Za-z][A-Za-z0-9+.-]*:",
    "uuid": "-",
}
"""What no validator goes beyond; a format that is not here might be any text."""

FORMATS: Final = frozenset(_LOWER)


def lower_format(name: str) -> Automaton:
    """Texts that keep the format whoever checks it."""
    from judge_local.grammar.languages import pattern

    found = pattern(f"^(?:{_LOWER[name]})$")
    if name == "hostname":
        # Two dashes there announce an encoded label, whose rules are not regular.
        return automata.meet(found, automata.complement(pattern(r"(?:^|\.)..--")))
    return found


def compact_format(name: str) -> Automaton | None:
    """A part of the format whose texts can be counted: only single states go round."""
    from judge_local.grammar.languages import pattern

    return pattern(f"^(?:{_COMPACT[name]})$") if name in _COMPACT else None


def upper_format(name: str) -> Automaton:
    """All texts that some validator may take for the format."""
    from judge_local.grammar.languages import pattern

    return pattern(_UPPER[name], "upper") if name in _UPPER else automata.ALL
