"""Libraries that know nothing of the mirror read through it."""

from collections.abc import Callable

import fsspec
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

from support.mirror_world import World

ROWS = pandas.DataFrame({"id": [1, 2, 3], "text": ["a", "b", "c"]})


@pytest.fixture
def tables(google: World) -> World:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(ROWS), sink)
    for number in range(3):
        google.store.put("far", f"documents/x/{number}.parquet", sink.getvalue().to_pybytes())
    google.store.put("near", "documents/x.csv", ROWS.to_csv(index=False).encode())
    google.store.put("near", "documents/x.jsonl", ROWS.to_json(orient="records", lines=True).encode())
    return google


def test_pandas(tables: World) -> None:
    assert pandas.read_csv("mirror://documents/x.csv").equals(ROWS)
    assert pandas.read_parquet("mirror://documents/x/0.parquet").to_dict() == ROWS.to_dict()
    assert len(tables.moves()) == 2
    ROWS.to_csv("mirror://out/y.csv", index=False)
    assert tables.content("out/y.csv") == ROWS.to_csv(index=False).encode()


def test_pyarrow(tables: World) -> None:
    fs = fsspec.filesystem("mirror")
    assert pyarrow.parquet.read_table("documents/x/0.parquet", filesystem=fs).num_rows == 3
    dataset = pyarrow.dataset.dataset("documents/x", filesystem=fs, format="parquet")
    assert dataset.to_table().num_rows == 9
    assert len(tables.moves()) == 3
    assert [name for name in tables.at_home() if name.startswith(".")] == []


def test_datasets(make_world: Callable[[str, str], World], tables: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets  # Slow to import: only here.

    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True, raising=False)
    options = {"split": "train", "cache_dir": str(tables.folder / "cache")}
    files = {"train": "mirror://documents/x.jsonl"}
    loaded = datasets.load_dataset("json", data_files=files, **options)
    assert loaded.to_dict() == {"id": [1, 2, 3], "text": ["a", "b", "c"]}
    assert len(tables.moves()) == 1
    streamed = datasets.load_dataset("parquet", data_files="mirror://documents/x/*.parquet", streaming=True, **options)
    assert len(list(streamed)) == 9
