"""Graphics cards, as this build of llama.cpp sees them: their names and what memory they have free now."""

from __future__ import annotations

import ctypes
from typing import Any

from llama_cpp import _ggml

from judge_local.engine.planning import Device

_GPU_TYPES = (1, 2)  # enum ggml_backend_dev_type: GGML_BACKEND_DEVICE_TYPE_GPU and …_IGPU


def devices() -> tuple[Device, ...]:
    """The graphics cards that this process may use, in llama.cpp's order. The backend must have been started."""
    library = _ggml.libggml
    if not hasattr(library, "ggml_backend_dev_count"):
        return ()
    count = _call(library, "ggml_backend_dev_count", ctypes.c_size_t)()
    found = []
    for index in range(count):
        device = ctypes.c_void_p(
            _call(library, "ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)(index)
        )
        if _call(library, "ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(device) not in _GPU_TYPES:
            continue
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        sizes = ctypes.POINTER(ctypes.c_size_t)
        memory = _call(library, "ggml_backend_dev_memory", None, ctypes.c_void_p, sizes, sizes)
        memory(device, ctypes.byref(free), ctypes.byref(total))
        words = _call(library, "ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)(device)
        found.append(Device((words or b"").decode("utf-8", "replace"), free.value, total.value))
    return tuple(found)


def _call(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function
