"""Keeps what Levanter, JAX and the like log about themselves out of a step's log; warnings stay.

A step that trains for a week reports its own progress. If MARIN_LOG_LEVEL is set, everything from that level on is
shown.
"""

from __future__ import annotations

import logging
import os

_TALKATIVE = (
    *("datasets", "fray", "jax", "lm_eval", "matplotlib", "rigging", "tensorstore", "tqdm_loggable"),
    # Levanter sets the level of `levanter` itself when it starts, but not of what is below it.
    *("levanter.checkpoint", "levanter.compat", "levanter.cutlass_kernel_cache", "levanter.data"),
    *("levanter.distributed", "levanter.eval", "levanter.eval_harness", "levanter.inference", "levanter.kernels"),
    *("levanter.main", "levanter.model_loading", "levanter.store", "levanter.tensorstore_serialization"),
    *("levanter.tracker", "levanter.trainer", "levanter.utils"),
)

_WRONG = {
    # The cache names the folder of its tokenizer, which is elsewhere now; that it is the same one has been checked.
    "levanter.store.cache": logging.ERROR,
    # There is none for a model that is trained from scratch.
    "levanter.compat.hf_checkpoints": logging.ERROR,
    # The profiler is off.
    "levanter.callbacks.profiler": logging.ERROR,
    # CPUs have no known peak, which the metrics leave out.
    "fray.device_flops": logging.ERROR,
}
"""Warnings about things that are fine."""

_OF_EACH_LEAF = "Unknown leaf type"
"""Levanter says so of each part of an optimizer's state that is None, whenever it reads a checkpoint."""


def quiet_libraries() -> None:
    """Call before the libraries are imported: some read variables then."""
    if os.environ.get("MARIN_LOG_LEVEL"):
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name, level in _WRONG.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("levanter.tensorstore_serialization").addFilter(_says_something)


def _says_something(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_OF_EACH_LEAF)
