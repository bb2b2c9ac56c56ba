"""Clients of stores: which store a URL has, whose client it is, and what is said when there is none."""

import multiprocessing
import sys
import threading

import pytest

from marin_rules.storage.explain import StorageError
from marin_rules.storage.objects import open as open_module
from marin_rules.storage.objects.advisory import AdvisoryObjects
from marin_rules.storage.objects.gcs import GcsObjects
from marin_rules.storage.objects.open import open_objects
from marin_rules.storage.objects.s3 import S3Objects


@pytest.fixture(autouse=True)
def no_clients_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_module, "_local", threading.local())


@pytest.mark.usefixtures("gcs_here", "s3_here")
def test_a_url_finds_its_store() -> None:
    assert isinstance(open_objects("gs://bucket/a"), GcsObjects)
    assert isinstance(open_objects("s3://bucket/a"), S3Objects)
    assert isinstance(open_objects("memory://bucket/a"), AdvisoryObjects)


def test_a_client_is_made_once_for_a_thread_and_never_shared() -> None:
    first, others = open_objects("memory://one/a"), list[object]()
    assert open_objects("memory://two/b") is first
    thread = threading.Thread(target=lambda: others.append(open_objects("memory://one/a")))
    thread.start()
    thread.join(30)
    assert others
    assert others[0] is not first


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_a_client_of_its_own() -> None:
    first = open_objects("memory://one/a")
    fork = multiprocessing.get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: sending.send(open_objects("memory://one/a") is first))
    child.start()
    assert receiving.poll(30)
    assert receiving.recv() is False
    child.join(30)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("gs://bucket/a", "google.cloud.storage", "gcp"), ("s3://bucket/a", "botocore.session", "s3")],
)
def test_a_client_that_is_not_installed(url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, _, name = module.rpartition(".")
    monkeypatch.setitem(sys.modules, module, None)
    if parent in sys.modules:
        monkeypatch.delattr(sys.modules[parent], name, raising=False)
    with pytest.raises(StorageError, match=rf"cannot use {url}.*pip install 'marin-rules\[{extra}\]'"):
        open_objects(url)


def test_a_scheme_that_nobody_knows() -> None:
    with pytest.raises(StorageError, match=r"cannot use abc://bucket/a.*Install the fsspec filesystem"):
        open_objects("abc://bucket/a")


def test_google_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(StorageError, match=r"no valid credentials.*gcloud auth application-default login"):
        open_objects("gs://bucket/a")


@pytest.mark.usefixtures("s3_here")
def test_amazon_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StorageError, match=r"no valid credentials.*aws configure"):
        open_objects("s3://bucket/a").read("s3://bucket/a")
