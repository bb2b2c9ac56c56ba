"""Near-duplicates by datatrove, in an environment of its own: `datatrove_dedupe.py WORKERS`, in the input's folder.

The four stages of its MinHash pipeline, with shingles, signatures and bands of the same sizes as ours. Documents that
share a band are duplicates to it: it has no threshold.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

SHINGLE, BANDS, ROWS, SHARDS = 5, 16, 8, 8


def main(workers: int) -> None:
    shutil.rmtree("datatrove", ignore_errors=True)
    config = MinhashConfig(n_grams=SHINGLE, num_buckets=BANDS, hashes_per_bucket=ROWS)

    def reader() -> JsonlReader:
        return JsonlReader("documents", glob_pattern="*.jsonl.zst", compression="zstd")

    stages = [
        (SHARDS, [reader(), MinhashDedupSignature("datatrove/signatures", config=config)]),
        (BANDS, [MinhashDedupBuckets("datatrove/signatures", "datatrove/buckets", config=config)]),
        (1, [MinhashDedupCluster("datatrove/buckets", "datatrove/removed", config=config)]),
        (
            SHARDS,
            [
                reader(),
                MinhashDedupFilter(
                    "datatrove/removed", exclusion_writer=JsonlWriter("datatrove/out", compression=None)
                ),
            ],
        ),
    ]
    for number, (tasks, pipeline) in enumerate(stages):
        # Forked, so that the workers' CPU seconds are seen; its own choice, a server that forks, hides them.
        LocalPipelineExecutor(
            pipeline, tasks=tasks, workers=workers, logging_dir=f"datatrove/logs/{number}", start_method="fork"
        ).run()
    marked = [
        json.loads(line)["id"]
        for path in Path("datatrove/out").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    Path("datatrove-marked.json").write_text(json.dumps(marked))


if __name__ == "__main__":
    main(int(sys.argv[1]))
