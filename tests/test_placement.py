"""Where steps may run: from their data, their resources and the TPUs they are connected to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from marin_rules import (
    ANY_REGION,
    ExecutorStep,
    InputName,
    PlanError,
    ResourceConfig,
    mirrored,
    remote,
    this_output_path,
    versioned,
)
from marin_rules.placement import place
from marin_rules.plan import make_plan

LOCATIONS = {"us1": "us-central1", "us5": "US-EAST5", "us": "US", "eu4": "europe-west4", "eu": "eu", "dual": "nam4"}


@dataclass(frozen=True)
class Config:
    data: Any = None
    more: Any = None
    output: Any = field(default_factory=this_output_path)


def work(config: Config) -> None: ...


def step(name: str, data: Any = None, more: Any = None, **options: Any) -> ExecutorStep[Config]:
    return ExecutorStep(name, work, Config(data, more), **options)


def region_of(url: str) -> str | None:
    return LOCATIONS.get(url.removeprefix("gs://").partition("/")[0])


def placed(
    *steps: ExecutorStep[Any], prefix: str = "/out", region_of: Callable[[str], str | None] = region_of
) -> dict[str, tuple[str, ...] | None]:
    plan = make_plan(steps, prefix=prefix)
    found = place(plan, region_of)
    assert list(found) == list(range(len(plan.steps)))
    return {plan.steps[index].name: locations for index, locations in found.items()}


def tpu(**options: Any) -> ResourceConfig:
    return ResourceConfig.with_tpu("v4-8", **options)


def test_local_steps_may_run_anywhere() -> None:
    a = step("a", "/data", ["x", {"y": 1.5}])
    assert placed(a, step("b", a)) == {"a": None, "b": None}


def test_a_step_belongs_to_the_region_of_its_data() -> None:
    assert placed(step("a", "gs://us1/x")) == {"a": ("us-central1",)}
    assert placed(step("a", versioned("gs://us5/x"))) == {"a": ("us-east5",)}
    assert placed(step("a", InputName.hardcoded("gs://eu4/x"))) == {"a": ("europe-west4",)}
    assert placed(step("a", "gcs://us1/x")) == {"a": ("us-central1",)}
    assert placed(step("a", "simplecache::gs://us1/x")) == {"a": ("us-central1",)}
    assert placed(step("a", [{"deep": ("x", {"gs://us1/x"})}])) == {"a": ("us-central1",)}


def test_a_step_belongs_to_the_region_of_its_output() -> None:
    assert placed(step("a"), prefix="gs://us1") == {"a": ("us-central1",)}
    assert placed(ExecutorStep("a", work, None, override_output_path="gs://eu4/a")) == {"a": ("europe-west4",)}


def test_a_step_belongs_to_the_region_of_its_dependencies() -> None:
    a = step("a", override_output_path="gs://us1/a")
    assert placed(step("b", a / "x"))["b"] == ("us-central1",)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("gs://us/x", "gs://us1/x", ("us-central1",)),
        ("gs://us1/x", "gs://us/x", ("us-central1",)),
        ("gs://us/x", "gs://dual/x", ("nam4",)),
        ("gs://us/x", "gs://us/y", ("us",)),
        ("gs://unknown/x", "gs://us1/x", ("us-central1",)),
        ("gs://unknown/x", "/data", None),
        ("s3://us1/x", "text about gs://us1", None),
    ],
)
def test_a_multi_region_fits_its_regions(one: str, other: str, expected: tuple[str, ...] | None) -> None:
    assert placed(step("a", one, other)) == {"a": expected}


def test_two_regions_in_one_step_are_refused_with_the_evidence() -> None:
    with pytest.raises(PlanError) as refused:
        placed(step("tokenize", {"train": ["gs://us1/x"]}, resources=ResourceConfig()), prefix="gs://eu4/marin")
    text = str(refused.value)
    assert text.startswith("step 'tokenize' is cross-region")
    assert "config.data.train[0] = gs://us1/x -> us-central1" in text
    assert "output path = gs://eu4/marin/tokenize-" in text
    assert "mirrored(" in text


@pytest.mark.parametrize("other", ["gs://us5/x", "gs://eu4/x", "gs://eu/x"])
def test_regions_that_do_not_cover_each_other_are_refused(other: str) -> None:
    with pytest.raises(PlanError, match="cross-region"):
        placed(step("a", "gs://us1/x", other, resources=ResourceConfig()))


def test_a_step_beside_the_driver_is_only_warned_about() -> None:
    """It runs where the driver is, whatever the plan says, and what it reads is charged to a budget."""
    warnings: list[str] = []
    plan = make_plan([step("a", "gs://us1/x", "gs://eu4/x")], prefix="/out")
    assert place(plan, region_of, warnings) == {0: None}
    (warning,) = warnings
    assert warning.startswith("step 'a' is cross-region")
    assert "gs://eu4/x -> europe-west4" in warning
    assert "beside the driver" in warning


def test_a_dependency_in_another_region_is_refused() -> None:
    a = step("a", override_output_path="gs://eu4/a")
    with pytest.raises(PlanError, match=r"step 'b' is cross-region(.|\n)*config\.data = gs://eu4/a/x -> europe-west4"):
        placed(step("b", a / "x", resources=ResourceConfig()), prefix="gs://us1")


def test_mirrored_paths_do_not_count() -> None:
    a = step("a", override_output_path="gs://eu4/a")
    b = step("b", mirrored(a / "x"), mirrored("gs://us5/x"))
    assert placed(b, prefix="gs://us1") == {"a": ("europe-west4",), "b": ("us-central1",)}


def test_resources_narrow_the_choice() -> None:
    several = ResourceConfig.with_cpu(regions=["europe-west4", "us-central1", "US-EAST5"])
    assert placed(step("a", resources=several)) == {"a": ("europe-west4", "us-central1", "us-east5")}
    assert placed(step("a", "gs://us/x", resources=several)) == {"a": ("us-central1", "us-east5")}
    zone = ResourceConfig.with_cpu(zone="us-central1-b")
    assert placed(step("a", "gs://us/x", resources=zone)) == {"a": ("us-central1",)}
    assert placed(ExecutorStep("a", remote(work, resources=zone), Config())) == {"a": ("us-central1",)}
    anywhere = ResourceConfig.with_cpu(regions=[ANY_REGION])
    assert placed(step("a", "gs://us1/x", resources=anywhere)) == {"a": ("us-central1",)}
    own = ExecutorStep("a", remote(work, resources=several), Config(), resources=zone)
    assert placed(own) == {"a": ("us-central1",)}


def test_resources_far_from_the_data_are_refused() -> None:
    with pytest.raises(PlanError, match=r"cross-region(.|\n)*resources\.regions = \['europe-west4'\]"):
        placed(step("a", "gs://us1/x", resources=ResourceConfig.with_cpu(regions=["europe-west4"])))
    with pytest.raises(PlanError, match=r"'a': resources\.zone: 'moon' is not a zone"):
        placed(step("a", resources=ResourceConfig.with_cpu(zone="moon")))


def test_steps_connected_to_a_tpu_share_its_region() -> None:
    raw = step("raw")
    tokens = step("tokens", raw)
    train = step("train", tokens, resources=tpu(regions=["us-central2", "us-east5"]))
    evaluate = step("evaluate", train)
    sibling = step("sibling", raw)
    apart = step("apart")
    assert placed(evaluate, sibling, apart) == {
        **dict.fromkeys(["raw", "tokens", "train", "evaluate", "sibling"], ("us-central2",)),
        "apart": None,
    }


def test_of_several_regions_a_group_gets_the_first_by_name() -> None:
    """As in Marin, whose jobs of one DAG must meet where ours do."""
    train = step("train", resources=tpu(regions=["us-east5", "us-central2", "europe-west4"]))
    assert placed(train) == {"train": ("europe-west4",)}


def test_data_anywhere_in_the_group_decide() -> None:
    raw = step("raw", "gs://us5/x")
    train = step("train", raw, resources=tpu(regions=["us-central2", "us-east5"]))
    assert placed(train, prefix="/out") == {"raw": ("us-east5",), "train": ("us-east5",)}


def test_no_common_region_is_refused_with_the_evidence() -> None:
    raw = step("raw", "gs://us1/x")
    train = step("train", raw, resources=tpu(zone="europe-west4-a"))
    with pytest.raises(PlanError) as refused:
        placed(train)
    text = str(refused.value)
    assert "cross-region: step 'train' needs a TPU" in text
    assert "step 'raw': config.data = gs://us1/x -> us-central1" in text
    assert "step 'train': resources.zone = europe-west4-a -> europe-west4" in text


def test_two_tpus_in_one_group_must_agree() -> None:
    first = step("first", resources=tpu(regions=["us-east5", "us-central2"]))
    second = step("second", first, resources=tpu(regions=["us-central2"]))
    assert placed(second) == dict.fromkeys(["first", "second"], ("us-central2",))
    third = step("third", second, resources=tpu(regions=["europe-west4"]))
    with pytest.raises(PlanError, match="cross-region"):
        placed(third)


def test_mirrored_dependencies_do_not_connect() -> None:
    raw = step("raw", override_output_path="gs://eu4/raw")
    train = step("train", mirrored(raw / "x"), resources=tpu(regions=["us-central2"]))
    assert placed(train) == {"raw": ("europe-west4",), "train": ("us-central2",)}
    both = step("train", mirrored(raw / "x"), raw / "y", resources=tpu(regions=["us-central2"]))
    with pytest.raises(PlanError, match="cross-region"):
        placed(both)


def test_steps_that_do_not_run_are_not_looked_at() -> None:
    old = step("old", "gs://us1/x", "gs://eu4/x", resources=tpu(regions=["europe-west4"]))
    new = step("new", (old / "y").nonblocking(), resources=tpu(regions=["us-central2"]))
    assert placed(new) == {"old": None, "new": ("us-central2",)}


def test_a_bucket_is_asked_once() -> None:
    asked: list[str] = []

    def slow(url: str) -> str:
        asked.append(url)
        return "us-central1"

    placed(*(step(f"s{i}", f"gs://b/{i}") for i in range(50)), prefix="gs://b", region_of=slow)
    assert asked == ["gs://b"]
