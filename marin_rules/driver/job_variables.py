"""Which of the driver's variables a job gets. This is the one list; docs/slurm.md shows it to users.

A job does not inherit the driver's environment: a session on a login node is full of variables that are wrong on a node
(an agent, a display, a temporary folder, the numbers of the job that the driver runs in) or private (tokens that no
step asked for). It gets the variables below that are set. A `*` at the end of a name stands for any ending. Names of
one's own are added in `MARIN_JOB_VARIABLES`, or for all users of a cluster in `jobs.variables` of its file; `env_vars`
of a step are for that step alone, and win over all of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from marin_rules.clusters.protocol import STEP_VARIABLE

NAMES_VARIABLE = "MARIN_JOB_VARIABLES"
"""More names, between commas."""

EVERYWHERE = (
    # our own: prefix, cluster, lease times, trust, log level
    "MARIN_*",
    # language and time
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    # stores: where they are, and with which credentials
    "AWS_*",
    "BOTO_CONFIG",
    "CLOUDSDK_*",
    "DISABLE_GCS_*",
    "FSSPEC_*",
    "GCE_METADATA_*",
    "GCLOUD_PROJECT",
    "GCSFS_*",
    "GOOGLE_*",
    "NO_GCE_CHECK",
    "STORAGE_EMULATOR_HOST",
    # the way out: proxies and certificates
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    # models, data and trackers
    "HF_*",
    "HUGGINGFACE_*",
    "HUGGING_FACE_*",
    "TRANSFORMERS_*",
    "WANDB_*",
    # how Python and numerical libraries behave
    "JAX_*",
    "LIBTPU_*",
    "MKL_*",
    "NCCL_*",
    "NUMEXPR_*",
    "OMP_*",
    "OPENBLAS_*",
    "PYTHONFAULTHANDLER",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "PYTHONWARNINGS",
    "PYTORCH_*",
    "TF_CPP_*",
    "TOKENIZERS_PARALLELISM",
    "TORCH_*",
    "XLA_*",
    # where packages come from, for environments that nodes make
    "PIP_*",
    "UV_*",
)
"""Variables that mean the same on every machine."""

WITH_SHARED_FILES = (
    # the user, whose home is the same there
    "HOME",
    "LOGNAME",
    "SHELL",
    "USER",
    "XDG_*",
    # where the driver finds its programs, packages and libraries
    "PATH",
    "LD_LIBRARY_PATH",
    "MANPATH",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CUDA_HOME",
    "CUDA_PATH",
    # conda, and the modules of a site
    "CONDA*",
    "MAMBA_*",
    "BASH_ENV",
    "BASH_FUNC_*",
    "ENV",
    "FPATH",
    "LMOD_*",
    "LOADEDMODULES",
    "MODULE*",
    "_LMFILES_",
    "_ModuleTable*",
    # Snakemake, which jobs of hand-written rules start
    "SNAKEMAKE_*",
)
"""Variables that name files of the driver: valid only if nodes have these files, too."""

OF_THE_DRIVER = (
    "MARIN_RULES_DRIVER_JOB",
    "MARIN_RULES_NAMED_VARIABLES",
    "MARIN_RULES_OWN_VARIABLES",
    "MARIN_RULES_STEP_VARIABLES",
    "MARIN_RULES_SUPERVISOR",
    "MARIN_RULES_WARM",
)
"""What leads to the driver's own processes and memory, which no other machine can reach: never passed on."""

OF_THE_DRIVERS_JOB = ("MARIN_RULES_JOB_", STEP_VARIABLE)
"""The beginnings of variables that describe a job to itself and its steps, if the driver is in one: never passed on."""


def chosen_variables(environment: Mapping[str, str], *, shared: bool, more: Sequence[str] = ()) -> dict[str, str]:
    """The variables of `environment` that a job gets; `more` are names that users have added.

    Without shared files it finds its programs by the PATH of its machine, or of the container that it runs in.
    """
    names = [*EVERYWHERE, *(WITH_SHARED_FILES if shared else ()), *more]
    own = [name.strip() for name in environment.get(NAMES_VARIABLE, "").split(",") if name.strip()]
    return _matching(environment, [*names, *own])


def _matching(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    exact = {name for name in names if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: value
        for name, value in environment.items()
        if (name in exact or name.startswith(beginnings))
        and name not in OF_THE_DRIVER
        and not name.startswith(OF_THE_DRIVERS_JOB)
    }
