"""Whether a process has C libraries that may have something to do when it ends, besides those of Python and its worker.

A library comes with an extension module, or through ctypes; the loader counts both. What a step registers by hand with
the C library itself (`__cxa_atexit` through ctypes) without loading another one is not seen here.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_has_preloaded = "LD_PRELOAD" in os.environ or os.path.exists("/etc/ld.so.preload")
"""Whether libraries are injected into every program: most of them write a report about it at its end."""


class _Library(ctypes.Structure):
    """What dl_iterate_phdr(3) reports about a library, as far as it is of use here."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
    )


def _note_loads(library: Any, size: int, found: Any) -> int:
    found[0] = library[0].loads
    return 1  # Enough: it is the same for all libraries.


_VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.POINTER(ctypes.c_ulonglong))
_visit = _VISIT(_note_loads)


def loaded_so_far() -> int | None:
    """How many libraries this process has loaded since it started; None if that is unknown or meaningless."""
    if _has_preloaded:
        return None
    found = ctypes.c_ulonglong()
    try:
        ctypes.PyDLL(None).dl_iterate_phdr(_visit, ctypes.byref(found))
    except AttributeError:  # Not on this system.
        return None
    return found.value
