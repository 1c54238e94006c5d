"""Prompt assembly: messages and a chat template become token ids, and no untrusted text becomes a control token.

The template is rendered with a sentinel in place of every message's content. What stands between the sentinels is the
template's own scaffolding and is tokenised with special tokens on; every content is tokenised with them off; the pieces
are joined as ids. So a content that holds ``<|im_end|>`` stays text, whoever wrote it.

The design this follows marks, inside a message, which text is ours and which is untrusted. Here the whole content of
every message counts as untrusted: our own instructions hold no control tokens, so nothing is lost, there is one seam
fewer for the tokeniser, and a caller's `system` cannot forge a turn either.

Pure but for the vocabulary it is given; runs in the worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from judge_local.engine.thinking import OFF, ON, Budget, Style
from judge_local.errors import ChatTemplateError, IsolationError, UsageError, excerpt

_SENTINEL: Final = "JLx{}x7f3a9c51e2d84b60"
"""Letters and digits only, so that no template escapes, strips or splits it."""

_HARMLESS: Final = re.compile(
    r"\s*|</?(a|b|blockquote|br|caption|code|del|div|em|h[1-6]|hr|i|img|ins|li|mark|ol|p|pre|s|span|strike|strong|sub|"
    r"sup|table|tbody|td|tfoot|th|thead|tr|u|ul)/?>"
)
"""User-defined tokens that are plain typography (white space, HTML): the model was trained on them as text."""


Scaffold = tuple[tuple[str, str], ...]
"""(`system` | `user` | `scaffold`, text) in order, with each content exactly once."""


class Vocabulary(Protocol):
    """What assembly needs of a model."""

    @property
    def sentencepiece(self) -> bool:
        """Whether the tokeniser puts a space before each piece."""
        ...

    @property
    def control(self) -> frozenset[int]:
        """Control and end-of-generation tokens."""
        ...

    @property
    def user_defined(self) -> tuple[int, ...]:
        """Tokens parsed out of text even with special tokens off."""
        ...

    @property
    def add_bos(self) -> bool:
        """Whether a prompt starts with `bos`."""
        ...

    @property
    def bos(self) -> int:
        """Beginning of sequence; negative for none."""
        ...

    @property
    def eos(self) -> int:
        """End of sequence; negative for none."""
        ...

    def token_text(self, token: int) -> str:
        """The token's text, as a template writes it."""
        ...

    def tokenize(self, data: bytes, *, special: bool) -> list[int]:
        """Tokens of `data`."""
        ...

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a rendered prompt."""

    text: str
    trusted: bool
    """True for the template's own scaffolding only."""


class PromptAssembler:
    """Turns (system, user) into the token ids of one prompt that ends where the answer begins.

    Args:
        vocabulary: the model's.
        template: Jinja source of the chat template.
        where: the model's name, for messages.
        thinking: tokens that a thinking model may think before it answers; 0 closes its think block at once.

    Raises:
        ChatTemplateError: the template is not Jinja, or does not give every message's content back exactly once.
        UsageError: `thinking` for a model that does not think.
    """

    def __init__(
        self, vocabulary: Vocabulary, template: str | None, *, where: str, thinking: int = 0
    ) -> None:
        if not template:
            raise ChatTemplateError(
                where,
                "there is no chat template",
                "Choose an instruction-tuned model, or give a template with --chat-template FILE.",
            )
        self._vocabulary, self._where = vocabulary, where
        self._template = self._parse(template)
        self.notes: tuple[str, ...] = ()
        self._markers = self._user_defined_markers()
        self._scaffold, self.style = self._scaffolds(template, thinking > 0)
        self.thinking = None
        """How each run is to think; None where it is not."""
        if self.style is not None and thinking > 0:
            self.thinking = Budget(self.style, thinking, lambda text: self._scaffolding(text, first=False))
            self.notes += (f"a thinking model: it thinks for at most {thinking} tokens before it answers",)
        elif self.style is not None:
            self.notes += ("a thinking model: its think block is closed at once",)
        elif thinking > 0:
            raise UsageError("thinking", f"{where} has no template of a model that thinks", "Leave it out.")
        self._begun: tuple[str, list[int]] | None = None
        """The last `system` whose beginning was asked for, with its tokens."""

    def tokens(self, system: str, user: str) -> list[int]:
        """Token ids of the whole prompt.

        Raises:
            IsolationError: a content would not reach the model byte for byte, or would hold a control token.
        """
        return self._joined(self.pieces(system, user))

    def beginning(self, system: str) -> list[int]:
        """The token ids with which every prompt with `system` begins, whatever its `user` is.

        Raises:
            IsolationError: as `tokens`.
        """
        if self._begun is None or self._begun[0] != system:
            names = [name for name, _ in self._scaffold]
            before_user = self._filled(self._scaffold[: names.index("user")], {"system": system})
            self._begun = (system, self._joined(before_user))
        return self._begun[1]

    def pieces(self, system: str, user: str) -> tuple[Piece, ...]:
        """The rendered prompt, cut where trust changes."""
        return self._filled(self._scaffold, {"system": system, "user": user})

    def _filled(self, parts: Sequence[tuple[str, str]], contents: Mapping[str, str]) -> tuple[Piece, ...]:
        return tuple(
            Piece(contents[part], trusted=False) if part in contents else Piece(text, trusted=True)
            for part, text in parts
            if part in contents or text
        )

    def _joined(self, pieces: Sequence[Piece]) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            if piece.trusted:
                ids += self._scaffolding(piece.text, first=not ids)
            else:
                ids += self.plain(piece.text)
        bos = self._vocabulary.bos
        if self._vocabulary.add_bos and bos >= 0 and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def plain(self, text: str) -> list[int]:
        """Token ids of untrusted text: never a control token, and the same bytes back.

        Raises:
            IsolationError: this vocabulary cannot do that for `text`.
        """
        ids = [token for part in self._split_markers(text) for token in self._plain_part(part)]
        forged = [token for token in ids if token in self._vocabulary.control]
        back = b"".join(self._vocabulary.piece(token, special=True) for token in ids)
        if forged or back != _utf8(text):
            reason = "a control token came of it" if forged else "the tokens spell other bytes"
            raise IsolationError(
                self._where,
                f"its vocabulary does not keep {excerpt(text, 60)} as plain text ({reason})",
                "Use another model.",
            )
        return ids

    def _plain_part(self, part: str) -> list[int]:
        if not self._vocabulary.sentencepiece:
            return self._vocabulary.tokenize(_utf8(part), special=False)
        # SentencePiece puts a space before what it is given: give it a line feed first, and drop that again.
        lead = self._vocabulary.tokenize(b"\n", special=False)
        ids = self._vocabulary.tokenize(b"\n" + _utf8(part), special=False)
        return ids[len(lead) :] if ids[: len(lead)] == lead else ids

    def _scaffolding(self, text: str, *, first: bool) -> list[int]:
        if first or not self._vocabulary.sentencepiece:
            return self._vocabulary.tokenize(text.encode(), special=True)
        lead = self._vocabulary.tokenize(b"\n", special=True)
        ids = self._vocabulary.tokenize(b"\n" + text.encode(), special=True)
        return (
            ids[len(lead) :]
            if ids[: len(lead)] == lead
            else self._vocabulary.tokenize(text.encode(), special=True)
        )

    def _split_markers(self, text: str) -> list[str]:
        """`text` cut inside every user-defined marker, so that no part holds a whole one."""
        if self._markers is None:
            return [text]
        parts: list[str] = []
        waiting = [text]
        while waiting:
            part = waiting.pop()
            found = self._markers.search(part)
            if found is None:
                parts.append(part)
                continue
            middle = found.start() + max(1, (found.end() - found.start()) // 2)
            # The right half waits below the left one: parts come out in order.
            waiting += [part[middle:], part[:middle]]
        return parts

    def _user_defined_markers(self) -> re.Pattern[str] | None:
        texts = {
            text
            for token in self._vocabulary.user_defined
            if len(text := self._vocabulary.token_text(token)) > 1 and not _HARMLESS.fullmatch(text)
        }
        longest_first = sorted(texts, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, longest_first))) if texts else None

    def _scaffolds(self, template: str, thinking: bool) -> tuple[Scaffold, Style | None]:
        """The scaffold in use, and the model's style of thinking, where it has one."""
        off, on = self._render(OFF), self._render(ON)
        # A model that cannot stop thinking has a template that refuses to be told so.
        off, on = off or on, on or off
        if off is None or on is None:
            raise ChatTemplateError(
                self._where,
                "its chat template does not give each message back exactly once",
                "Give another template with --chat-template FILE.",
            )
        style = Style.read(template, off[-1][1], on[-1][1], switch=off != on)
        if style is None:
            return off, None
        used, tail = (on, style.opened) if thinking else (off, style.closed)
        return (*used[:-1], ("scaffold", tail)), style

    def _render(self, told: Mapping[str, Any]) -> Scaffold | None:
        """The template's text around the two contents; None when it takes no such messages, or drops or doubles one.

        Raises:
            ChatTemplateError: it puts them in another order, or fails.
        """
        system, user = _SENTINEL.format(0), _SENTINEL.format(1)
        rendered = self._apply(
            [{"role": "system", "content": system}, {"role": "user", "content": user}], told
        )
        if rendered is None or system not in rendered:
            # Some templates know no system role: its text opens the user turn then.
            self.notes = ("the template has no system role; its text opens the user turn",)
            rendered = self._apply([{"role": "user", "content": f"{system}\n\n{user}"}], told)
        if rendered is None or rendered.count(system) != 1 or rendered.count(user) != 1:
            return None
        if rendered.index(system) > rendered.index(user):
            raise ChatTemplateError(
                self._where,
                "its chat template puts the user's message before the system's",
                "Give another template with --chat-template FILE.",
            )
        before, rest = rendered.split(system)
        between, after = rest.split(user)
        return (
            ("scaffold", before),
            ("system", ""),
            ("scaffold", between),
            ("user", ""),
            ("scaffold", after),
        )

    def _apply(self, messages: Sequence[dict[str, str]], told: Mapping[str, Any]) -> str | None:
        """The rendered text, or None when the template itself refuses these messages."""
        import jinja2

        try:
            return str(
                self._template.render(
                    messages=messages,
                    add_generation_prompt=True,
                    bos_token=self._vocabulary.token_text(self._vocabulary.bos),
                    eos_token=self._vocabulary.token_text(self._vocabulary.eos),
                    **told,
                )
            )
        except _TemplateRefusalError:
            return None
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            RecursionError,
            MemoryError,
        ) as error:
            raise ChatTemplateError(
                self._where,
                f"its chat template fails: {excerpt(str(error))}",
                "Give another template with --chat-template FILE.",
            ) from error

    def _parse(self, source: str) -> Any:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        # `strftime_now` is left out on purpose: with the date in it, a prompt would not be the same tomorrow.
        environment.globals["raise_exception"] = _raise_exception
        try:
            return environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ChatTemplateError(
                self._where,
                f"its chat template is not Jinja: {excerpt(str(error))}",
                "Give another template with --chat-template FILE.",
            ) from error


class _TemplateRefusalError(Exception):
    """A template called `raise_exception`: it does not take these roles."""


def _raise_exception(message: str) -> None:
    raise _TemplateRefusalError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=indent)


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise IsolationError(
            "prompt",
            f"character {error.start} is a lone surrogate, which no UTF-8 text holds",
            "Repair the text.",
        ) from None
