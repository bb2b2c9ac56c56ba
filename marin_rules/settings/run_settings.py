"""The settings of a run, as Snakemake's configuration gives them: checked before anything else happens."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from marin_rules.errors import SettingsError
from marin_rules.settings.locations import config_schema

_BOOLEANS: dict[str, Any] = {"true": True, "false": False}
"""`--config key=false` reaches the Snakefile as a text."""


@dataclass(frozen=True)
class Settings:
    """What can be set in `config/config.yaml` or with `--config key=value`."""

    experiment: str | None = None
    prefix: str | None = None
    run_only: tuple[str, ...] | None = None
    force: tuple[str, ...] | None = None
    must_have: tuple[str, ...] = ()
    force_run_failed: bool | None = None
    executor_info_base_path: str | None = None
    rules: tuple[str, ...] = ()
    cluster: str | None = None
    max_concurrent: int | None = None


@cache
def _schema() -> dict[str, Any]:
    schema = yaml.safe_load(config_schema().read_text())
    assert isinstance(schema, dict)
    return schema


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Check the configuration against its schema; the error names the key and what to write instead."""
    from jsonschema import Draft202012Validator

    given = {key: _BOOLEANS.get(value, value) if isinstance(value, str) else value for key, value in config.items()}
    given = {key: value for key, value in given.items() if value is not None}
    known = list(_schema()["properties"])
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise SettingsError(f"unknown configuration key {key!r}. {hint}Known keys: {', '.join(known)}.")
    error = next(iter(Draft202012Validator(_schema()).iter_errors(given)), None)
    if error is not None:
        key = str(error.path[0]) if error.path else "configuration"
        raise SettingsError(
            f"configuration key {key!r}: {error.message}. It means: {_schema()['properties'][key]['description']}"
        )
    return Settings(
        experiment=given.get("experiment"),
        prefix=given.get("prefix"),
        run_only=_texts(given["run_only"]) if "run_only" in given else None,
        force=_texts(given["force"]) if "force" in given else None,
        must_have=_texts(given.get("must_have", ())),
        force_run_failed=given.get("force_run_failed"),
        executor_info_base_path=given.get("executor_info_base_path"),
        rules=_texts(given.get("rules", ())),
        cluster=given.get("cluster"),
        max_concurrent=given.get("max_concurrent"),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return (str(value),) if isinstance(value, str | int | float) else tuple(str(item) for item in value)
