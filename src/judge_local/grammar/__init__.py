"""JSON Schema → GBNF, and a matcher that follows a text through a grammar."""

from judge_local.grammar.compile import Grammar, compile_schema
from judge_local.grammar.profile import compile_verdict
from judge_local.grammar.recogniser import Matcher
from judge_local.grammar.report import Kind, Report, Row, RowText

__all__ = ["Grammar", "Kind", "Matcher", "Report", "Row", "RowText", "compile_schema", "compile_verdict"]
