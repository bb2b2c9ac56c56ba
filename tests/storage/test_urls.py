"""URLs taken apart, and prefixes that cannot work."""

import os

import pytest

from marin_rules.errors import SettingsError
from marin_rules.urls import bucket_root, check_prefix, split_url


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("gs://b/x/y", ("gs", "b", "x/y")),
        ("gs://b", ("gs", "b", "")),
        ("s3://b/x//y", ("s3", "b", "x//y")),
        ("/data/x", ("", "", "/data/x")),
        ("data/gs://x", ("", "", "data/gs://x")),
        ("file:///data/x", ("", "", "file:///data/x")),
    ],
)
def test_split_url(url: str, parts: tuple[str, str, str]) -> None:
    assert split_url(url) == parts


def test_bucket_root() -> None:
    assert bucket_root("gs://b/x/y") == "gs://b"
    with pytest.raises(ValueError, match="/data/x"):
        bucket_root("/data/x")


@pytest.mark.parametrize(
    "prefix",
    [
        "out",
        "/tmp/x",
        "/tmp/x/",
        "./a b",
        "a:b",
        "./~/x",
        "x/~",
        "o{x}",
        "gs://b",
        "gs://my.b_1/x",
        "s3://b/x",
    ],
)
def test_good_prefixes_pass_unchanged(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize(
    ("prefix", "problem", "advice"),
    [
        ("gcs:/b/x", "one slash", "'gs://b/x'"),
        ("gs:/b", "one slash", "'gs://b'"),
        ("s3:/b", "one slash", "'s3://b'"),
        ("gcs://b/x", "gcs://", "'gs://b/x'"),
        ("GS://b", "GS://", "'gs://b'"),
        ("gss://b", "gss://", "'gs://b'"),
        ("s3a://b", "s3a://", "'s3://b'"),
        ("http://b/x", "http://", "gs://my-bucket"),
        ("https://storage.googleapis.com/b", "https://", "gs://my-bucket"),
        ("mirror://x", "for reading", "gs://my-bucket"),
        ("abfs://b/x", "abfs://", "gs://my-bucket"),
        ("memory://x/y", "ends with the process", "a folder"),
        ("file:///tmp/x", "paths that they can open", "'/tmp/x'"),
        ("local://x", "paths that they can open", "'x'"),
        ("~/x", "a folder named '~'", f"{os.path.expanduser('~')}/x'"),
        ("~", "a folder named '~'", f"{os.path.expanduser('~')!r}"),
        ("~nobody-of-that-name/x", "a folder named '~nobody-of-that-name'", "'./~nobody-of-that-name/x'"),
        ("gs://b/", "ends with a slash", "'gs://b'"),
        ("gs://b/x/", "ends with a slash", "'gs://b/x'"),
        ("gs://b/x//", "ends with a slash", "'gs://b/x'"),
        ("gs://b//x", "empty part", "'gs://b/x'"),
        (" gs://b", "", "'gs://b'"),
        ("gs://b/x\n", "white space", "'gs://b/x'"),
        ("gs://b/my data", "white space", "'gs://b/mydata'"),
        ("gs://", "no bucket", "'gs://BUCKET/FOLDER'"),
        ("gs:///x", "no bucket", "'gs://BUCKET/x'"),
        ("gs://Marin/x", "'Marin'", "lower-case"),
        ("", "empty", "gs://my-bucket"),
        ("  ", "empty", "gs://my-bucket"),
    ],
)
def test_bad_prefixes_are_refused_with_what_to_write(prefix: str, problem: str, advice: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_prefix(prefix)
    assert problem in str(refused.value)
    assert advice in str(refused.value)
