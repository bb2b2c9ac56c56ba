"""`marin-rules cluster discover | check`: a first version of a cluster's file, and what is missing for a first run."""

from __future__ import annotations

import argparse
import textwrap

from marin_rules.checks import Check, Verdict
from marin_rules.clusters.open import CLUSTER_NAMES, clusters_here, open_cluster
from marin_rules.clusters.protocol import Cluster, WantedMachines
from marin_rules.errors import SettingsError
from marin_rules.plans.prepare import prepare_experiment
from marin_rules.settings.cluster_file import cluster_name, find_cluster_file, read_block
from marin_rules.settings.run_settings import Settings
from marin_rules.storage.prefix import marin_prefix
from marin_rules.views.terminal import printable

_WIDTH = max(len(verdict.value) for verdict in Verdict)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command to the parser."""
    actions = parser.add_subparsers(dest="action", required=True)
    discover = actions.add_parser("discover", help="print the machines of a cluster as a file for config/clusters")
    discover.add_argument(
        "kind", nargs="?", choices=CLUSTER_NAMES, help="the kind of cluster; by default the one of this machine"
    )
    discover.set_defaults(run=_discover)
    check = actions.add_parser("check", help="list what a first run would lack, each with what to type next")
    check.add_argument(
        "experiment", nargs="?", help="an experiment file whose steps are checked against quotas and TPUs"
    )
    check.add_argument("--cluster", metavar="NAME", help="the cluster's file; by default that of MARIN_CLUSTER")
    check.add_argument("--prefix", metavar="URL", help="where results will go; by default as in a run")
    check.set_defaults(run=_check)


def _discover(options: argparse.Namespace) -> int:
    kinds = ", ".join(CLUSTER_NAMES)
    advice = f"Run `marin-rules cluster discover KIND` where its commands are; KIND is one of {kinds}"
    cluster = open_cluster(options.kind) if options.kind else _the_only(clusters_here(cluster_name()), advice)
    print(cluster.first_file(), end="")
    return 0


def _check(options: argparse.Namespace) -> int:
    """Exit with 0 only if everything is there: what could not be checked may be missing."""
    name = options.cluster or cluster_name()
    advice = "Name a cluster's file with --cluster NAME or MARIN_CLUSTER"
    clusters = [_the_only(clusters_here(None), advice)] if name is None else _in_file(name)
    prefix, wanted = options.prefix or marin_prefix(name), _wanted(options, name)
    verdicts = []
    for cluster in clusters:
        for check in cluster.check(name, prefix, wanted):
            print(printable(_lines(check)), flush=True)
            verdicts.append(check.verdict)
    missing, unknown = verdicts.count(Verdict.MISSING), verdicts.count(Verdict.UNKNOWN)
    if not missing and not unknown:
        return 0
    print(f"\n{len(verdicts)} checks: {missing} missing, {unknown} could not be made")
    return 1


def _wanted(options: argparse.Namespace, cluster: str | None) -> list[WantedMachines]:
    """What the steps of the experiment ask for, if one is named; a bucket that cannot be seen does not matter here."""
    if options.experiment is None:
        return []
    settings = Settings(experiment=options.experiment, prefix=options.prefix, cluster=cluster)
    steps = prepare_experiment(settings, may_be_unseen=lambda: True).steps
    return [WantedMachines(step.name, step.machines, step.regions) for step in steps if step.machines is not None]


def _in_file(name: str) -> list[Cluster]:
    """The clusters that a file is about."""
    path = find_cluster_file(name)
    kinds = [kind for kind in CLUSTER_NAMES if read_block(path, kind)]
    if not kinds:
        raise SettingsError(f"cluster file {path} has no block for a cluster: {', '.join(CLUSTER_NAMES)}")
    return [open_cluster(kind) for kind in kinds]


def _lines(check: Check) -> str:
    detail = f": {check.detail}" if check.detail else ""
    first = f"{check.verdict.value:{_WIDTH}}  {check.what}{detail}"
    if check.verdict is Verdict.OK or not check.command:
        return first
    return f"{first}\n{textwrap.indent(check.command, ' ' * (_WIDTH + 4))}"


def _the_only(clusters: list[Cluster], advice: str) -> Cluster:
    if len(clusters) == 1:
        return clusters[0]
    kinds = ", ".join(cluster.name for cluster in clusters) or "none"
    raise SettingsError(f"which cluster? This machine can ask: {kinds}. {advice}")
