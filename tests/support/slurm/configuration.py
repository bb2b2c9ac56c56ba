"""The configuration files of a test cluster: its nodes and partitions, and the reasons for each setting.

Only texts are made here; `cluster` starts the daemons that read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CPU_NODES = ("cpu1", "cpu2")
GPU_NODES = ("gpu1", "gpu2")
NODES = CPU_NODES + GPU_NODES
GPUS_PER_NODE = 2

CONTROLLER = "controller"
"""The host name of the controller and of the accounting daemon."""

CLUSTER_NAME = "test"
DATABASE = "slurm_acct_db"
DATABASE_USER = "slurm"

KILL_WAIT_SECONDS = 5
"""From SIGTERM to SIGKILL when a job is cancelled or out of time. Slurm's own default is 30."""

REQUEUE_SECONDS = 6
"""How long a requeued job waits at least before it starts again. Slurm's own default is 121. More than the above, for
when an administrator sets a node down, Slurm requeues its jobs before their processes have ended."""

NODE_TIMEOUT_SECONDS = 10
MESSAGE_TIMEOUT_SECONDS = 5
"""A node that has not answered for the first is down; the second bounds each try. It takes about 17 s from a power cut
until the jobs of the node are requeued or have failed. Slurm's own defaults are 300 and 10; with less than here, a busy
machine would be taken for a dead node."""

_SLURM = f"""\
ClusterName={CLUSTER_NAME}
SlurmctldHost={{controller}}(127.0.0.1)
SlurmctldPort={{controller_port}}
SlurmctldPidFile={{folder}}/run/slurmctld.pid
SlurmctldLogFile={{folder}}/log/slurmctld.log
StateSaveLocation={{folder}}/state
SlurmdPidFile={{folder}}/run/%n.pid
SlurmdLogFile={{folder}}/log/%n.log
SlurmdSpoolDir={{folder}}/spool/%n

# Without munge, which would need a daemon and a key, whoever reaches a port is root: so all ports are on loopback.
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=cred_expire={REQUEUE_SECONDS - 1}

# Neither systemd nor cgroups: processes are found by their parents, and memory is looked at every second.
ProctrackType=proctrack/linuxproc
Epilog={{folder}}/epilog
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill

# The nodes have what is written here, whatever this machine has.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu

# Schedules at once, not when it suits thousands of jobs.
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2
CompleteWait=0

# As sites set them, but with less waiting. A node that an administrator took down stays down until resumed.
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={KILL_WAIT_SECONDS}
OverTimeLimit=0
SlurmdTimeout={NODE_TIMEOUT_SECONDS}
MessageTimeout={MESSAGE_TIMEOUT_SECONDS}
ReturnToService=1
InactiveLimit=0
MinJobAge=3600

{{accounting}}

NodeName=DEFAULT CPUs=4 RealMemory=4000 State=UNKNOWN
{{nodes}}

# Jobs of a higher tier preempt those of a lower one, as far as the lower partition lets them.
PartitionName=DEFAULT MaxTime=60 DefMemPerCPU=100 State=UP
PartitionName=cpu Nodes={",".join(CPU_NODES)} Default=YES PriorityTier=5 PreemptMode=OFF
PartitionName=gpu Nodes={",".join(GPU_NODES)} PriorityTier=5 PreemptMode=OFF
PartitionName=spare Nodes={",".join(NODES)} PriorityTier=1 PreemptMode=REQUEUE
PartitionName=scavenge Nodes={",".join(NODES)} PriorityTier=1 PreemptMode=CANCEL
PartitionName=graceful Nodes={",".join(NODES)} PriorityTier=1 PreemptMode=CANCEL GraceTime=20
PartitionName=gracious Nodes={",".join(NODES)} PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=urgent Nodes={",".join(NODES)} PriorityTier=10 PreemptMode=OFF
"""

_EPILOG = """\
#!/bin/sh
# After the end of a job on a node, ends what is left of it there. With cgroups, as sites have them, nothing ever is;
# here a process whose parent has ended is not found as part of the job. (SLURM_PROCID tells a task from this script.)
cd /proc || exit 0
grep -lzx "SLURM_JOB_ID=$SLURM_JOB_ID" [0-9]*/environ 2>/dev/null |
    xargs -r grep -lzx "SLURMD_NODENAME=$SLURMD_NODENAME" 2>/dev/null |
    xargs -r grep -lzx "SLURM_CONF={configuration}" 2>/dev/null |
    xargs -r grep -lz "^SLURM_PROCID=" 2>/dev/null |
    cut -d/ -f1 |
    xargs -r kill -KILL 2>/dev/null
exit 0
"""

_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment"""

_NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"

_SLURMDBD = f"""\
AuthType=auth/none
SlurmUser=root
CommunicationParameters=NoInAddrAny
DbdHost={{controller}}
DbdAddr=127.0.0.1
DbdPort={{accounting_port}}
LogFile={{folder}}/log/slurmdbd.log
PidFile={{folder}}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={{database_port}}
StorageUser={DATABASE_USER}
StorageLoc={DATABASE}
"""


@dataclass(frozen=True)
class Ports:
    """Where the daemons listen on 127.0.0.1."""

    controller: int
    accounting: int
    database: int
    nodes: Mapping[str, int]


def write_configuration(folder: Path, ports: Ports, *, one_host: str | None, accounting: bool) -> Path:
    """Write slurm.conf and the files that Slurm looks for beside it.

    With `one_host`, the controller and all nodes have that host name; otherwise each has its own.
    """
    controller = one_host or CONTROLLER
    nodes = [
        f"NodeName={name} NodeHostname={one_host or name} NodeAddr=127.0.0.1 Port={ports.nodes[name]}"
        + (f" Gres=gpu:a100:{GPUS_PER_NODE}" if name in GPU_NODES else "")
        for name in NODES
    ]
    slurm = _SLURM.format(
        folder=folder,
        controller=controller,
        controller_port=ports.controller,
        accounting=_ACCOUNTING.format(port=ports.accounting) if accounting else _NO_ACCOUNTING,
        nodes="\n".join(nodes),
    )
    gpus = f"NodeName={','.join(GPU_NODES)} Name=gpu Type=a100 File={folder}/gpu[0-{GPUS_PER_NODE - 1}]"
    (folder / "slurm.conf").write_text(slurm)
    (folder / "gres.conf").write_text(f"AutoDetect=off\n{gpus}\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    (folder / "epilog").write_text(_EPILOG.format(configuration=folder / "slurm.conf"))
    (folder / "epilog").chmod(0o755)
    if accounting:
        slurmdbd = _SLURMDBD.format(
            folder=folder,
            controller=controller,
            accounting_port=ports.accounting,
            database_port=ports.database,
        )
        # slurmdbd refuses a file that others may read.
        (folder / "slurmdbd.conf").touch(mode=0o600)
        (folder / "slurmdbd.conf").write_text(slurmdbd)
    return folder / "slurm.conf"
