"""The settings of a run, as Snakemake's configuration gives them: checked before anything else happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_rules.errors import SettingsError
from marin_rules.settings.locations import config_schema
from marin_rules.settings.schema import first_problem, known_keys, unknown_key

_BOOLEANS: dict[str, Any] = {"true": True, "false": False}
"""`--config key=false` reaches the Snakefile as a string."""


@dataclass(frozen=True)
class Settings:
    """What can be set in `config/config.yaml` or with `--config key=value`."""

    experiment: str | None = None
    prefix: str | None = None
    run_only: tuple[str, ...] | None = None
    force: tuple[str, ...] | None = None
    must_have: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    again: bool = False
    force_run_failed: bool | None = None
    executor_info_base_path: str | None = None
    rules: tuple[str, ...] = ()
    cluster: str | None = None
    compat: bool = False
    max_concurrent: int | None = None
    max_usd: float | None = None


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Check the configuration against its schema; the error names the key and what to write instead."""
    given = {key: _BOOLEANS.get(value, value) if isinstance(value, str) else value for key, value in config.items()}
    given = {key: value for key, value in given.items() if value is not None}
    known = known_keys(config_schema())
    for key in given:
        if key not in known:
            raise SettingsError(f"unknown configuration key {unknown_key(str(key), known)}")
    found = first_problem(config_schema(), given)
    if found is not None:
        meaning = f". It means: {found.advice}" if found.advice else ""
        raise SettingsError(f"configuration key {found.where!r} {found.message}{meaning}")
    if given.get("again", False) and "only" not in given:
        raise SettingsError("configuration key 'again' is about the steps of `only`: name them there")
    return Settings(
        experiment=given.get("experiment"),
        prefix=given.get("prefix"),
        run_only=_texts(given["run_only"]) if "run_only" in given else None,
        force=_texts(given["force"]) if "force" in given else None,
        must_have=_texts(given.get("must_have", ())),
        only=_texts(given.get("only", ())),
        again=given.get("again", False),
        force_run_failed=given.get("force_run_failed"),
        executor_info_base_path=given.get("executor_info_base_path"),
        rules=_texts(given.get("rules", ())),
        cluster=given.get("cluster"),
        compat=given.get("compat", False),
        max_concurrent=given.get("max_concurrent"),
        max_usd=given.get("max_usd"),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return (str(value),) if isinstance(value, str | int | float) else tuple(str(item) for item in value)
