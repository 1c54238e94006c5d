"""Write a model's weights anew in another type, with llama.cpp's own quantiser.

python -m judge_local.engine.quantise     asked as `children` says; see `children.quantise` for the question
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Final

from llama_cpp import llama_cpp as _llama

from judge_local.engine.childhood import Tell, answer
from judge_local.errors import EngineError, excerpt

TYPES: Final = {
    "Q8_0": _llama.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q6_K": _llama.LLAMA_FTYPE_MOSTLY_Q6_K,
    "Q5_K_M": _llama.LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "Q4_K_M": _llama.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q4_0": _llama.LLAMA_FTYPE_MOSTLY_Q4_0,
    "F16": _llama.LLAMA_FTYPE_MOSTLY_F16,
}
"""What can be asked for; `optimize` offers the same."""

_STEP: Final = re.compile(rb"^\[\s*(\d+)/\s*(\d+)\]")


def quantise(question: dict[str, Any], tell: Tell) -> None:
    """Write the file `target`, which must not be there."""
    said: list[str] = []

    def log(_level: int, text: bytes, _data: object) -> None:
        if step := _STEP.match(text):
            tell({"done": int(step[1]), "total": int(step[2])})
        elif text.strip(b". \n"):
            said.append(text.decode("utf-8", "replace").strip())

    callback = _llama.llama_log_callback(log)
    _llama.llama_log_set(callback, ctypes.c_void_p(0))
    _llama.llama_backend_init()
    params = _llama.llama_model_quantize_default_params()
    params.nthread = question["n_threads"]
    params.ftype = TYPES[question["type"]]
    params.allow_requantize = True
    source, target = os.fsencode(question["source"]), os.fsencode(question["target"])
    if _llama.llama_model_quantize(source, target, ctypes.byref(params)) != 0:
        raise EngineError("quantise", f"llama.cpp could not ({excerpt(said[-1] if said else '')})")


if __name__ == "__main__":
    answer(quantise)
