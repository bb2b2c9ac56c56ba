"""The locked environment of `train`, as a step has it: what is in it, and that it lives beside Marin's own packages."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from support.lab import REPOSITORY, Lab

_ORDERS = {
    "ours first": "install_mirror(); import rigging.filesystem.mirror, levanter.store.cache",
    "theirs first": "import rigging.filesystem.mirror, levanter.store.cache; install_mirror()",
    "theirs in between": "install_mirror(); import rigging.filesystem.mirror; install_mirror(); import levanter.main",
}

_READS_MIRROR = """
import fsspec
from marin_rules.storage.mirror.install import install_mirror
{imports}
theirs = rigging.filesystem.mirror.MirrorFileSystem
filesystem = fsspec.filesystem("mirror")
assert not isinstance(filesystem, theirs), type(filesystem)
print(type(filesystem).__module__, fsspec.open("mirror://there/a.txt", "rt").open().read())
"""

_EXPERIMENT = """
from marin_rules import ExecutorStep, executor_main, remote


def look(config):
    import importlib.metadata
    import os

    import fsspec
    import jax
    import levanter.main.train_lm

    import marin_rules

    jax.jit(lambda x: x * 3 + 1)(jax.numpy.arange(5)).block_until_ready()
    with fsspec.open("mirror://there/a.txt", "rt") as file:
        mirrored = file.read()
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "HF_HOME", "MARIN_PREFIX")
    return {
        "variables": {name: os.environ.get(name) for name in names},
        "fsspec": importlib.metadata.version("fsspec"),
        "marin_rules": os.path.realpath(marin_rules.__file__),
        "compiled": len(os.listdir(os.environ["JAX_COMPILATION_CACHE_DIR"])),
        "mirrored": mirrored,
        "filesystem": type(fsspec.filesystem("mirror")).__module__,
    }


step = ExecutorStep("look", remote(look, pip_dependency_groups=["train"], env_vars={"HF_HOME": "/my/models"}), {})

if __name__ == "__main__":
    executor_main(steps=[step])
"""


@pytest.mark.parametrize("order", _ORDERS)
def test_mirror_is_ours_in_every_order_of_imports(training_python: Path, tmp_path: Path, order: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.txt").write_text("found")
    done = subprocess.run(
        [training_python, "-c", _READS_MIRROR.format(imports=_ORDERS[order])],
        env={**os.environ, "MARIN_PREFIX": str(tmp_path), "HF_HOME": str(tmp_path / "hf")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["marin_rules.storage.mirror.filesystem", "found"]


@pytest.mark.usefixtures("training_python")
def test_a_step_of_the_group_train_runs_in_the_locked_environment(training_lab: Lab) -> None:
    lab = training_lab
    file = lab.experiment(_EXPERIMENT)
    (lab.prefix / "there").mkdir(parents=True)
    (lab.prefix / "there" / "a.txt").write_text("found")
    planned = lab.snakemake("-n", experiment=file)
    assert "environment train-" in planned.output
    result = lab.snakemake(experiment=file)
    assert result.code == 0, result.output
    assert "building" not in result.output, "the suite's own environment is the step's"

    found = json.loads((lab.folder_of("look") / ".artifact.json").read_text())
    assert found["variables"]["HF_HOME"] == "/my/models", "what the step was given wins"
    assert found["variables"]["MARIN_PREFIX"] == str(lab.prefix)
    assert found["variables"]["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
    assert found["compiled"] > 0
    assert found["marin_rules"] == str(REPOSITORY / "marin_rules" / "__init__.py")
    assert (found["filesystem"], found["mirrored"]) == ("marin_rules.storage.mirror.filesystem", "found")

    lock = (REPOSITORY / "requirements" / "train.txt").read_bytes()
    environment = lab.info_of("look")["run"]["environment"]
    assert environment["lock"] == {"file": "requirements/train.txt", "sha256": hashlib.sha256(lock).hexdigest()}
    assert environment["packages"]["fsspec"] == found["fsspec"]
    assert f"fsspec=={found['fsspec']}" in environment["requirements"]
