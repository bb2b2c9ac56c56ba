"""Jobs of Google Batch without anything of ours around them: create so many, list them until all are done.

    python batch_loop.py COUNT NAME [--look]

With `--look` the jobs are looked at once, as a driver of ours does.
"""

from __future__ import annotations

import getpass
import sys
import time

from google.cloud import batch_v1

from marin_rules.clusters.gcp.calls import open_batch_client

PARENT = "projects/emulated/locations/us-central1"


def create(client: batch_v1.BatchServiceClient, name: str, labels: dict[str, str]) -> None:
    runnable = batch_v1.Runnable(script=batch_v1.Runnable.Script(text="true"))
    group = batch_v1.TaskGroup(task_spec=batch_v1.TaskSpec(runnables=[runnable]), task_count=1)
    job = batch_v1.Job(task_groups=[group], labels=labels)
    client.create_job(request=batch_v1.CreateJobRequest(parent=PARENT, job_id=name, job=job))


def main(count: int, name: str, *, looks: bool) -> None:
    client = open_batch_client()
    if looks:
        from marin_rules.clusters.gcp.job_queue import BatchQueue
        from marin_rules.clusters.gcp.site import GcpSite
        from marin_rules.clusters.protocol import JobRequest, JobTag

        queue = BatchQueue(GcpSite("lab", "emulated", ("us-central1",)), owner=getpass.getuser())
        ids = []
        for number in range(count):
            tag = JobTag.of(name, f"step{number}-123456", f"gs://bucket/{number}")
            ids.append(queue.submit(JobRequest(f"step{number}", "true", {}, "/", "", {}, tag)))
        print(len(queue.look(ids)), "jobs")
        return
    for number in range(count):
        create(client, f"{name}-{number}", {"name": name})
    while True:
        request = batch_v1.ListJobsRequest(parent=PARENT, filter=f'labels."name" = "{name}"')
        if all(job.status.state.name == "SUCCEEDED" for job in client.list_jobs(request=request)):
            break
        time.sleep(0.5)
    print("all done")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], looks="--look" in sys.argv)
