"""Files from elsewhere, fetched once and accounted for: the stage `download`.

sources what a config names
hub        the files of a Hugging Face repository
packages   the file of an npm, PyPI or Debian package; npm_registry does without npm
fetching   one file, with retries and resumption
archives one archive, unpacked safely
manifest   what has been fetched
stage      all of it
"""

from marin_rules.pipeline.download.fetching import FetchSettings
from marin_rules.pipeline.download.sources import (
    FilesystemSource,
    HubSource,
    PackageKind,
    PackageSource,
    RemoteFile,
    RepositoryKind,
    Source,
    UrlSource,
)
from marin_rules.pipeline.download.stage import DownloadConfig, download

__all__ = [
    "DownloadConfig",
    "FetchSettings",
    "FilesystemSource",
    "HubSource",
    "PackageKind",
    "PackageSource",
    "RemoteFile",
    "RepositoryKind",
    "Source",
    "UrlSource",
    "download",
]
