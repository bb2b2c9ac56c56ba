"""What a run may cost, from the cluster's prices to what a person reads: with a real Snakemake."""

import pytest

from marin_rules.clusters.prices import Cost, Price, price_variables, recorded_cost
from marin_rules.plans.plan_file import write_plan
from support.emulators.gcs.emulator import GcsEmulator
from support.lab import Lab
from support.small_plans import plan_of, step

EXPERIMENT = """
    from marin_rules import ExecutorStep, ResourceConfig, executor_main

    def work(config):
        pass

    data = ExecutorStep("data", work, {})
    gpu = ResourceConfig.with_gpu("A100-40G", cpu=4, ram="32g")
    cpu = ResourceConfig.with_cpu(cpu=2, ram="8g")
    train = ExecutorStep("train", work, {"data": data}, resources=gpu)
    count = ExecutorStep("count", work, {"data": data}, resources=cpu, tasks=10)
    executor_main(steps=[train, count])
    """

CLUSTER = """
gcp: {project: lab, regions: [us-central1], runtime: 1h, gpus: {A100-40G: {runtime: 4h}}}
"""


def test_a_run_that_may_cost_too_much_stops_before_anything_starts(lab: Lab, gcs: GcsEmulator) -> None:
    """By the list, an hour of Spot costs $1.80385 for an A100 with its machine, and $0.03094 for an e2-standard-2."""
    gcs.create_bucket("bucket")
    clusters = lab.folder / "config" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "lab.yaml").write_text(CLUSTER)
    result = lab.snakemake(
        "--profile",
        lab.repository / "profiles" / "gcp",
        experiment=lab.experiment(EXPERIMENT),
        prefix="gs://bucket/out",  # type: ignore[arg-type]
        config={"cluster": "lab", "max_usd": 7},
        env={**gcs.environment, "BATCH_EMULATOR_HOST": "127.0.0.1:1"},  # Nobody is there, and nobody is asked.
    )
    assert result.code != 0
    costs = [line.partition("h, ")[2] for line in result.output.splitlines() if "-> gcp" in line]
    assert costs == [
        "$1.80 an hour, at most $7.22 an attempt",
        "$0.03 an hour, at most $0.03 an attempt, $0.31 for all tasks",
    ]
    assert "cost: at most $7.52 at list prices of 2026-02-12, if each step runs once" in result.output
    (error,) = (line for line in result.output.splitlines() if line.startswith("error: "))
    assert error.startswith("error: max_usd=7 cannot be kept: the steps may cost $7.52 at list prices of 2026-02-12:")
    assert "train ($7.22), count ($0.31)" in error
    assert gcs.names("bucket", "out/data") == []


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ([], {"HF_TOKEN": "hf_abc"}, "step 'train' could not be submitted: the variable HF_TOKEN looks like a secret"),
        (["--set-resources", "work:gcp_zones='us-east1-b'"], {}, "a job in us-central1 cannot have machines in"),
        (["--set-resources", "work:mem_mb=999999"], {}, "but the job asks for 4 and 999999M: name a larger machine"),
        (["--set-resources", "work:runtime=0"], {}, "runtime=0 is not a time limit"),
    ],
    ids=["secret", "zones", "size", "endless"],
)
def test_a_job_that_batch_would_refuse_is_refused_before_anything_starts(
    lab: Lab, gcs: GcsEmulator, arguments: list[str], variables: dict[str, str], words: str
) -> None:
    gcs.create_bucket("bucket")
    clusters = lab.folder / "config" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "lab.yaml").write_text(CLUSTER)
    for dry in (["-n"], []):
        result = lab.snakemake(
            *dry,
            "--profile",
            lab.repository / "profiles" / "gcp",
            *arguments,
            experiment=lab.experiment(EXPERIMENT),
            prefix="gs://bucket/out",  # type: ignore[arg-type]
            config={"cluster": "lab"},
            env={**gcs.environment, **variables, "BATCH_EMULATOR_HOST": "127.0.0.1:1"},
        )
        said = "warning: a run would stop before its first step: " if dry else "error: "
        (line,) = (line for line in result.output.splitlines() if line.startswith(said))
        assert words in line
        assert (result.code == 0) == bool(dry)
        assert "hf_abc" not in result.output
    assert gcs.names("bucket", "out/data") == []


def test_the_worker_in_a_job_writes_the_price_of_the_job_down(lab: Lab) -> None:
    plan = plan_of(lab.folder, step("train"))
    file = lab.folder / "plan"
    write_plan(plan, str(file))
    variables = {"SLURM_JOB_ID": "7", **price_variables(Price(3600.0, "2026-01-01", "a page"))}
    worker = ["-m", "marin_rules.worker", "--plan", file, "--step", plan.steps[0].key]
    assert lab.python(*worker, env=variables).code == 0
    run = lab.info_of("train")["run"]
    assert recorded_cost(run) == Cost(pytest.approx(run["seconds"]), "2026-01-01")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set-resources", "work:gcp_zone=us-east1-b"], "gcp_zone: did you mean gcp_zones?"),
        (["--default-resources", "slurm_acount=5"], "slurm_acount: did you mean slurm_account?"),
    ],
)
def test_a_resource_that_no_cluster_knows_is_refused(
    lab: Lab, gcs: GcsEmulator, arguments: list[str], words: str
) -> None:
    """It would be ignored, and the machine another one than was asked for."""
    gcs.create_bucket("bucket")
    clusters = lab.folder / "config" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "lab.yaml").write_text(CLUSTER)
    result = lab.snakemake(
        "-n",
        "--profile",
        lab.repository / "profiles" / "gcp",
        *arguments,
        experiment=lab.experiment(EXPERIMENT),
        prefix="gs://bucket/out",  # type: ignore[arg-type]
        config={"cluster": "lab"},
        env=gcs.environment,
    )
    assert result.code != 0
    (error,) = (line for line in result.output.splitlines() if line.startswith("error: "))
    assert error == f"error: {arguments[0]}: no cluster knows the resource {words}"
