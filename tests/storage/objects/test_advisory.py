"""Objects on any other store of fsspec: the same contract as long as one asks at a time."""

import uuid

import pytest

from marin_rules.storage.explain import StorageError
from marin_rules.storage.objects.advisory import AdvisoryObjects
from marin_rules.storage.objects.store import StoredObject


@pytest.fixture
def url() -> str:
    return f"memory://bucket/{uuid.uuid4().hex}/step/.executor_status"


def test_an_object_is_changed_at_the_version_one_has_seen(url: str) -> None:
    objects = AdvisoryObjects(url)
    assert objects.read(url) is None
    first = objects.write(url, b"one", None)
    assert first is not None
    assert objects.write(url, b"other", None) is None
    second = objects.write(url, b"two", first)
    assert second is not None
    assert objects.write(url, b"other", first) is None
    assert objects.read(url) == StoredObject(b"two", second)
    assert not objects.delete(url, first)
    assert objects.delete(url, second)
    assert not objects.delete(url, second)
    assert objects.read(url) is None


def test_a_version_comes_back_with_its_content(url: str) -> None:
    objects = AdvisoryObjects(url)
    assert objects.repeats_versions
    first = objects.write(url, b"one", None)
    second = objects.write(url, b"two", first)
    assert objects.write(url, b"one", second) == first


def test_the_time_of_the_last_write(url: str) -> None:
    objects = AdvisoryObjects(url)
    assert objects.modified(url) is None
    objects.put(url, b"one")
    first = objects.modified(url)
    objects.put(url, b"two")
    assert first is not None
    assert (objects.modified(url) or 0.0) >= first


def test_trouble_of_the_filesystem_is_explained(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(*arguments: object, **options: object) -> bytes:
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", refuse)
    with pytest.raises(StorageError, match=f"cannot read {url}: permission denied .*not yours"):
        AdvisoryObjects(url).read(url)
