"""What a job asks for in the words of slurm-drmaa, its "native specification".

They look like options of sbatch and are read by a simpler program: words end at a space whatever the quotes, a value
ends at an `=`, memory is a bare number of megabytes, and time is `hours:minutes`. An option that it does not know is an
error, and so is one without a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marin_rules.errors import SettingsError
from marin_rules.slurm.submission import PLAIN_OPTIONS

_UNSPEAKABLE = re.compile(r"[\s=]")


def native_options(resources: Mapping[str, Any], *, threads: int, log: str) -> str:
    """One line for a job. `log` is where its output goes; `%j` stands for its id."""
    nodes = resources.get("nodes") or 1
    words = [
        _word("--nodes", nodes),
        _word("--ntasks", nodes),
        "--ntasks-per-node=1",
        _word("--cpus-per-task", resources.get("cpus_per_task") or threads),
        *(_word(option, resources.get(name)) for name, option in PLAIN_OPTIONS.items() if resources.get(name)),
    ]
    if runtime := resources.get("runtime"):
        words.append(_word("--time", f"0:{runtime}"))  # More than 59 minutes are fine.
    if gres := resources.get("gres"):
        # Given to Slurm as it stands, where sbatch would have put the kind of resource before it.
        words.append(_word("--gres", ",".join(f"gres:{item}" for item in str(gres).split(","))))
    return " ".join([*words, "--requeue", _word("--output", log), *str(resources.get("slurm_extra") or "").split()])


def _word(option: str, value: object) -> str:
    text = str(value)
    if _UNSPEAKABLE.search(text):
        raise SettingsError(
            f"slurm-drmaa cannot be told {option}={text!r}: no value may have a space or an equals sign in it. Change"
            " it in the cluster's file, or use `--profile slurm`."
        )
    return f"{option}={text}"
