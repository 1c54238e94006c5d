"""Panels: several judges under one time budget, and exactly one labelled result for each of them."""

from judge_local.panel.judges import judge_panel
from judge_local.panel.runner import FallbackCause, PanelResult, Via, run_panel

__all__ = ["FallbackCause", "PanelResult", "Via", "judge_panel", "run_panel"]
