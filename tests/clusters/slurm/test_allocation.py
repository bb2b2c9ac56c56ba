"""The job that a process is in, as Slurm sets the variables of its kinds of jobs. No Slurm is asked."""

from collections.abc import Mapping

import pytest

from marin_rules.clusters.allocation import DRIVER_JOB_VARIABLE, current_allocation, driver_job, own_allocation
from marin_rules.clusters.slurm.allocation import SlurmAllocation
from marin_rules.clusters.slurm.ranks import SlurmRanks, first_node

BATCH = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "cpu1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_PARTITION": "cpu",
}

ELEMENT = {"SLURM_ARRAY_JOB_ID": "8", "SLURM_ARRAY_TASK_ID": "1"}


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": ""}, None),  # As a shell leaves it that wanted to unset it.
        ({"SLURM_CONF": "/etc/slurm.conf"}, None),
        (BATCH, SlurmAllocation("7", "cpu1", 1, "cpu", 0)),
        ({"SLURM_JOB_ID": "7"}, SlurmAllocation("7", "", 1, "", 0)),
        (BATCH | {"SLURM_RESTART_COUNT": "2"}, SlurmAllocation("7", "cpu1", 1, "cpu", 2)),  # Requeued.
        (BATCH | {"SLURM_CPUS_PER_TASK": "8"}, SlurmAllocation("7", "cpu1", 1, "cpu", 0, cpus=8)),
        (
            BATCH | {"SLURM_JOB_END_TIME": "1763424000"},
            SlurmAllocation("7", "cpu1", 1, "cpu", 0, deadline=1763424000.0),
        ),
        (
            BATCH | {"SLURM_JOB_NODELIST": "gpu[1-4]", "SLURM_JOB_NUM_NODES": "4", "CUDA_VISIBLE_DEVICES": "0,1"},
            SlurmAllocation("7", "gpu[1-4]", 4, "cpu", 0, gpus="0,1"),
        ),
        # Several tasks on a node: nodes count, and nobody said how many cores a task has.
        (
            BATCH | {"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "4", "SLURM_TASKS_PER_NODE": "4"},
            SlurmAllocation("7", "cpu1", 1, "cpu", 0),
        ),
        # The second element of an array has a number of its own, by which nobody knows it.
        (
            BATCH | ELEMENT | {"SLURM_JOB_ID": "9"},
            SlurmAllocation("8_1", "cpu1", 1, "cpu", 0, element=1),
        ),
        # Its last one has that of the array.
        (
            BATCH | {"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "8", "SLURM_ARRAY_TASK_ID": "0"},
            SlurmAllocation("8_0", "cpu1", 1, "cpu", 0, element=0),
        ),
        # A heterogeneous job: srun, if it is not told otherwise, starts its tasks in the first component.
        (
            {
                "SLURM_JOB_ID": "20",
                "SLURM_HET_SIZE": "2",
                "SLURM_JOB_ID_HET_GROUP_0": "20",
                "SLURM_JOB_ID_HET_GROUP_1": "21",
                "SLURM_JOB_NODELIST_HET_GROUP_0": "cpu[1-2]",
                "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu1",
                "SLURM_JOB_NUM_NODES_HET_GROUP_0": "2",
                "SLURM_JOB_NUM_NODES_HET_GROUP_1": "1",
                "SLURM_JOB_PARTITION_HET_GROUP_0": "cpu",
                "SLURM_JOB_PARTITION_HET_GROUP_1": "gpu",
                "SLURM_CPUS_PER_TASK_HET_GROUP_0": "2",
            },
            SlurmAllocation("20", "cpu[1-2]", 2, "cpu", 0, cpus=2),
        ),
    ],
)
def test_a_job_is_known_by_its_variables(variables: Mapping[str, str], wanted: SlurmAllocation | None) -> None:
    assert current_allocation(variables) == wanted


def test_info_files_keep_what_is_known() -> None:
    job = SlurmAllocation("7", "gpu[1-2]", 2, "gpu", 0, gpus="0,1", cpus=3, deadline=1.0)
    assert (job.cluster, job.to_fields()) == (
        "slurm",
        {
            "job_id": "7",
            "nodes": "gpu[1-2]",
            "node_count": 2,
            "partition": "gpu",
            "restarts": 0,
            "gpus": "0,1",
            "cpus_per_task": 3,
        },
    )
    assert SlurmAllocation("7", "", 1, "", 0).to_fields() == {"job_id": "7", "node_count": 1, "restarts": 0}


@pytest.mark.parametrize(
    ("of_driver", "of_step", "wanted"),
    [
        ({}, {}, None),
        ({}, BATCH, "7"),
        (BATCH, BATCH, None),  # Beside its driver, in the driver's job.
        ({"SLURM_JOB_ID": "6"}, BATCH, "7"),
        # Two elements of one array, the driver in the first.
        ({"SLURM_JOB_ID": "9"} | ELEMENT, BATCH | ELEMENT | {"SLURM_ARRAY_TASK_ID": "2"}, "8_2"),
        (BATCH, {}, None),
    ],
)
def test_a_step_beside_its_driver_has_no_job_of_its_own(
    of_driver: Mapping[str, str], of_step: Mapping[str, str], wanted: str | None
) -> None:
    own = own_allocation({**of_step, DRIVER_JOB_VARIABLE: driver_job(of_driver)})
    assert (own and own.job_id) == wanted


def test_a_worker_that_was_told_of_no_driver_is_in_a_job_of_its_own() -> None:
    own = own_allocation(BATCH)
    assert own is not None
    assert own.job_id == "7"
    assert own_allocation({}) is None


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ("cpu1", "cpu1"),
        ("cpu1,cpu2", "cpu1"),
        ("cpu[1-2]", "cpu1"),
        ("gpu[007-009,12],cpu1", "gpu007"),
        ("gpu[3,5-6]", "gpu3"),
        ("rack[1-2]n[01-16]", "rack1n01"),
        ("n[1-2]-ib,other", "n1-ib"),
        ("login", "login"),
        ("", ""),
    ],
)
def test_the_first_node_of_a_list(nodes: str, wanted: str) -> None:
    assert first_node(nodes) == wanted


def test_srun_is_told_all_that_a_job_might_say_otherwise() -> None:
    plain = ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    rest = ["--kill-on-bad-exit=1", "--wait=0", "--label", "--export=ALL"]
    assert SlurmRanks("cpu[1-2]", 2, None).srun() == [*plain, *rest]
    assert SlurmRanks("cpu[1-2]", 2, 3).srun() == [*plain, "--cpus-per-task=3", *rest]
