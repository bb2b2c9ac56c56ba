"""What a job asks for in the syntax of slurm-drmaa, its "native specification".

They look like options of sbatch and are read by a simpler program: words end at a space whatever the quotes, a value
ends at an `=`, memory is a bare number of megabytes, and time is `hours:minutes`. An option that it does not know is an
error, and so is one without a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from marin_rules.clusters.slurm.submission import PLAIN_OPTIONS
from marin_rules.errors import SettingsError

_SHORT = {
    "-A": "--account",
    "-C": "--constraint",
    "-N": "--nodes",
    "-c": "--cpus-per-task",
    "-n": "--ntasks",
    "-o": "--output",
    "-p": "--partition",
    "-t": "--time",
    "-w": "--nodelist",
    "-x": "--exclude",
}
_SAME_SUBJECT = {"--mem-per-cpu": "--mem", "--no-requeue": "--requeue", "--time_limit": "--time"}

_UNSPEAKABLE = re.compile(r"[\s=]")


def native_options(resources: Mapping[str, Any], *, threads: int, log: str, extra: str | None = None) -> str:
    """One line for a job. `log` is where its output goes; `%j` stands for its id. `extra` wins over everything else,
    and `slurm_extra` of the resources over the other resources."""
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
        # Passed to Slurm unchanged, where sbatch would have prefixed the kind of resource.
        words.append(_word("--gres", ",".join(f"gres:{item}" for item in str(gres).split(","))))
    words += ["--requeue", _word("--output", log)]
    for more in (str(resources.get("slurm_extra") or "").split(), (extra or "").split()):
        words = [*_without(words, more), *more]
    return " ".join(words)


def _without(words: Sequence[str], more: Sequence[str]) -> list[str]:
    """The options that `more` does not set. Given an option twice, the library picks one of them: of `--mem`, the
    larger."""
    spoken_of = {_subject(word) for word in more}
    return [word for word in words if _subject(word) not in spoken_of]


def _subject(word: str) -> str:
    """What an option is about, however it is spelled."""
    option = word.partition("=")[0]
    if not option.startswith("--"):
        option = _SHORT.get(option[:2], option)
    return _SAME_SUBJECT.get(option, option)


def _word(option: str, value: object) -> str:
    text = str(value)
    if _UNSPEAKABLE.search(text):
        raise SettingsError(
            f"slurm-drmaa cannot be given {option}={text!r}: no value may have a space or an equals sign in it. Change"
            " it in the cluster's file, or use `--profile slurm`."
        )
    return f"{option}={text}"
