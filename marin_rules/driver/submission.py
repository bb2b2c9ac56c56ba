"""Submits a driver: the user's command becomes a small job of a cluster, or a process that outlives its terminal.

    1. the command is parsed, and run once as a dry run that hands its plan over (`submitted_plan`)
    2. the package, with its Snakefile and profiles, is unpacked into a folder that is named after its content; for a
       machine that does not see this one's files, it is put below the prefix (`sent_driver`)
    3. a record is written (`state.driver_record`), so that the driver can be listed, followed, stopped and waited for
    4. the supervisor is started (`supervisor`), in a job or here

What runs later is what existed at submission: functions, configs and the user's modules are in the plan, the rest is in
the unpacked package. Files that can only be read in place (hand-written rules, the user's own Snakefile) are pinned by
their checksums, and a driver that finds others refuses to start. Settings that people tune during a long run (the
cluster's file, profiles of their own) are read at each start.

Variables reach the driver in its environment and in no other way.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_rules.clusters.open import CLUSTER_NAMES, open_cluster
from marin_rules.clusters.patience import pause_seconds
from marin_rules.clusters.protocol import BusyError, Cluster, ClusterError, JobQueue, JobRequest, JobTag, Site
from marin_rules.driver import submitted_plan
from marin_rules.driver.driver_words import moved_profile, snakemake_words
from marin_rules.driver.job_variables import NAMES_VARIABLE, chosen_variables
from marin_rules.driver.node_start import check_prefix, log_there
from marin_rules.driver.sent_driver import CODE, SentDriver, check_no_files, pack, script_of, variables_of
from marin_rules.driver.submitted_command import Program, SubmittedCommand
from marin_rules.driver.submitted_plan import SubmittedPlan
from marin_rules.errors import MarinRulesError, SettingsError
from marin_rules.project import PACKAGE, project_folder
from marin_rules.settings.cluster_file import CLUSTER_VARIABLE, find_cluster_file, read_block
from marin_rules.settings.job_settings import JobSettings, read_job_settings
from marin_rules.software.code_archive import (
    PLUGINS_FOLDER,
    CodeArchive,
    package_files,
    project_files,
    publish,
    unpacked,
)
from marin_rules.state.driver_record import (
    NAME,
    SUBMITTING,
    DriverRecord,
    Holder,
    NameTakenError,
    all_drivers,
    changing_drivers,
    code_folder,
    drivers_folder,
    make_folders,
    place_below,
)
from marin_rules.storage.files import read_bytes
from marin_rules.worker.variables import for_driver_elsewhere

SUPERVISOR = "marin_rules.driver.supervisor"
ENGINE = "marin_rules.engine"
_PROFILE_VARIABLE = "SNAKEMAKE_PROFILE"
_MOST_WARNING_SECONDS = 300
_TRIES = 5
"""How many times a cluster that does not answer is asked to accept a driver."""

_START_SECONDS = 60.0
_POLL_SECONDS = 0.05

type Say = Callable[[str], None]


@dataclass(frozen=True)
class Submission:
    """What a person asked for."""

    command: SubmittedCommand
    typed: Sequence[str]
    """The same, as typed."""

    variables: Mapping[str, str]
    """Given with `-e`."""

    cluster: str | None = None
    """The cluster's file named for the driver."""

    here: bool = False
    """On this machine, although the run is for a cluster."""

    name: str | None = None


@dataclass(frozen=True)
class Submitted:
    """A driver that was submitted."""

    record: DriverRecord
    holder: Holder
    where: str
    """A short description for people."""


@dataclass(frozen=True)
class _Place:
    """A cluster that accepts the driver."""

    cluster: Cluster
    file: str | None
    """The name of the cluster's file."""

    site: Site
    settings: JobSettings
    sees_files: bool
    """Whether the machines of drivers have the files of this one; those of steps may not."""


@dataclass(frozen=True)
class _Start:
    """What the job of a driver executes, and where."""

    script: str
    variables: Mapping[str, str]
    folder: str
    log: str


def submit(submission: Submission, is_over: Callable[[DriverRecord], bool], say: Say) -> Submitted:
    """Submit a driver. A submission that is refused leaves nothing behind, except code that the next one uses.

    `is_over`: whether a driver has ended; the name of one that has not is taken.
    """
    _check_name(submission.name, is_over)
    asked = None if submission.cluster is None else _place_of(submission.cluster)
    make_folders()
    with tempfile.TemporaryDirectory(prefix=SUBMITTING, dir=drivers_folder()) as staging:
        handed = _frozen(submission, staging)
        place = asked or _place_for(submission, handed, say)
        with changing_drivers():
            _check_name(submission.name, is_over)
            sent = _packed(submission, handed, place) if place is not None and not place.sees_files else None
            record = _record(submission, handed, sent, in_job=place is not None)
            os.rename(staging, record.folder)
            os.mkdir(staging, 0o700)  # For the process that removes it.
            record.write()
    try:
        if place is not None and sent is not None:
            start = _start_elsewhere(place, record, submission, handed, sent, say)
            return _submit_to(place, record, start, say)
        if place is not None:
            return _submit_to(place, record, _start_there(place, record, submission, handed), say)
        return _start_here(record, submission, handed)
    except BaseException:
        if record.holder() is None:
            record.remove()
        raise


def _check_name(name: str | None, is_over: Callable[[DriverRecord], bool]) -> None:
    if name is None:
        return
    if not NAME.fullmatch(name):
        raise SettingsError(f"--name {name!r}: write letters, digits, '.', '_' and '-', at most a hundred")
    for record in all_drivers():
        if name in (record.name, record.id) and not is_over(record):
            raise NameTakenError(
                f"the name {name} is taken: driver {record.id} has it, and has not ended. Choose another, or stop that"
                f" one first: marin-rules jobs stop {name}"
            )


# -- the plan ------------------------------------------------------------------------------------------------


def _frozen(submission: Submission, folder: str) -> SubmittedPlan:
    """Run the user's command as a dry run, and take its plan."""
    command = submission.command
    with submitted_plan.receiver(folder) as receiver:
        variables = {**os.environ, **submission.variables, **receiver.variables}
        if submission.cluster is not None:
            variables[CLUSTER_VARIABLE] = submission.cluster
        if command.program is Program.SNAKEMAKE:
            words = [sys.executable, "-P", "-m", "snakemake", "-n", *command.arguments]
        else:
            if not os.path.isfile(command.arguments[0]):
                raise SettingsError(f"there is no experiment file {command.arguments[0]} (looked in {os.getcwd()})")
            words = [sys.executable, *command.arguments]
        # Standard output is for the id of the driver alone.
        code = subprocess.run(words, env=variables, stdin=subprocess.DEVNULL, stdout=2).returncode
        if code != 0:
            raise MarinRulesError("nothing was submitted: see the messages above")
        return receiver.received()


# -- where it goes -------------------------------------------------------------------------------------------


def _place_for(submission: Submission, handed: SubmittedPlan, say: Say) -> _Place | None:
    """By default the driver goes where its steps go; None for this machine."""
    if submission.here or handed.sends_to is None:
        return None
    if handed.sends_to not in CLUSTER_NAMES:
        say(f"{handed.sends_to} takes no drivers: this one is started on this machine")
        return None
    if handed.cluster is not None:
        return _place_of(handed.cluster)
    cluster = open_cluster(handed.sends_to)
    settings = read_job_settings(None, may_share=cluster.may_share_files)
    return _Place(cluster, None, cluster.open_site(None), settings, settings.shared)


def _place_of(name: str) -> _Place:
    """The queue for drivers of the cluster with this file."""
    path = find_cluster_file(name)
    kind = next((kind for kind in CLUSTER_NAMES if read_block(path, kind)), None)
    if kind is None:
        raise SettingsError(
            f"cluster {name} has no queue for drivers: {path} has no block for a kind of cluster"
            f" ({', '.join(f'`{kind}:`' for kind in CLUSTER_NAMES)}). Add one, with `drivers: partition:` in it if they"
            " have a partition of their own, or submit with --here."
        )
    cluster = open_cluster(kind)
    settings = read_job_settings(name, may_share=cluster.may_share_files)
    # Drivers get machines of their own, on a cluster whose others share nothing, for the sake of their files.
    sees_files = settings.shared or bool(read_block(path, kind).get("drivers"))
    return _Place(cluster, name, cluster.open_site(name), settings, sees_files)


# -- what runs -----------------------------------------------------------------------------------------------


def _code() -> str:
    """The package and the project's files as they are now, in a folder that does not change."""
    return unpacked(CodeArchive.of({**package_files(), **project_files(project_folder())}), code_folder())


def _packed(submission: Submission, handed: SubmittedPlan, place: _Place) -> SentDriver:
    """The same for a machine that would not see that folder."""
    check_prefix((handed.prefix, handed.base), has_no_disk=not place.cluster.may_share_files)
    check_no_files(handed.rule_files)
    arguments = submission.command.arguments if submission.command.program is Program.SNAKEMAKE else None
    return pack(arguments, handed.snakefile, {name for name in (place.file, handed.cluster) if name is not None})


def _record(submission: Submission, handed: SubmittedPlan, sent: SentDriver | None, *, in_job: bool) -> DriverRecord:
    command = submission.command
    code = CODE if sent is not None else _code()
    checked = list(handed.rule_files)
    if sent is not None and sent.words:
        words = [*sent.words]
    elif command.program is Program.SNAKEMAKE:
        assert handed.snakefile is not None
        words, own = snakemake_words(command.arguments, handed.snakefile, code)
        checked += own
    else:
        words = [ENGINE, *([] if handed.max_concurrent is None else ["--jobs", str(handed.max_concurrent)])]
    return DriverRecord(
        id=handed.run_id,
        name=submission.name,
        command=tuple(submission.typed),
        words=tuple(words),
        is_for_job=in_job,
        takes_plan_by_flag=command.program is Program.PYTHON,
        experiment=os.path.abspath(handed.experiment),
        working_directory=os.getcwd(),
        digest=handed.digest,
        plan_path=handed.plan_path,
        code=code,
        checksums={path: checksum(path) for path in checked},
        submitted=time.time(),
        prefix=handed.prefix,
        place=None if sent is None else place_below(handed.base, handed.run_id),
    )


def checksum(path: str) -> str:
    return hashlib.sha256(read_bytes(path) or b"").hexdigest()


def _variables(
    base: Mapping[str, str], submission: Submission, handed: SubmittedPlan, record: DriverRecord
) -> dict[str, str]:
    """The environment of the driver. Variables given with `-e` are also listed among those that its jobs get."""
    package = os.path.join(record.code, PACKAGE.name)
    paths = [record.code, os.path.join(package, PLUGINS_FOLDER), base.get("PYTHONPATH", "")]
    names = [os.environ.get(NAMES_VARIABLE, ""), *submission.variables]
    found = {**base, **submission.variables, **for_driver_elsewhere(handed.variables)}
    found["PYTHONPATH"] = os.pathsep.join(
        [*filter(os.path.isdir, paths[:2]), *filter(None, [submission.variables.get("PYTHONPATH", paths[2])])]
    )
    found[NAMES_VARIABLE] = ",".join(filter(None, names))
    if submission.cluster is not None:
        found[CLUSTER_VARIABLE] = submission.cluster
    if profile := found.get(_PROFILE_VARIABLE):
        found[_PROFILE_VARIABLE] = moved_profile(profile, record.code)
    return {name: value for name, value in found.items() if value or name != NAMES_VARIABLE}


def _supervisor(record: DriverRecord) -> list[str]:
    return [sys.executable, "-P", "-m", SUPERVISOR, record.folder]


# -- on this machine -----------------------------------------------------------------------------------------


def _start_here(record: DriverRecord, submission: Submission, handed: SubmittedPlan) -> Submitted:
    """In a session of its own: neither a hangup nor Ctrl-C in this terminal reaches it."""
    with open(record.log_path, "ab") as log:
        process = subprocess.Popen(
            _supervisor(record),
            env=_variables(os.environ, submission, handed, record),
            cwd=record.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        holder = _holder_of(record, process)
    except BaseException:
        process.kill()
        raise
    return Submitted(record, holder, f"process {process.pid} on this machine")


def _holder_of(record: DriverRecord, process: subprocess.Popen[bytes]) -> Holder:
    """The driver, once its process says that it is the one."""
    give_up = time.monotonic() + _START_SECONDS
    while (holder := record.holder()) is None:
        if process.poll() is not None or time.monotonic() > give_up:
            last = (read_bytes(record.log_path) or b"").decode(errors="replace").strip()[-2000:]
            raise MarinRulesError(f"the driver did not start: {last or f'exit code {process.returncode}'}")
        time.sleep(_POLL_SECONDS)
    return holder


# -- on a cluster --------------------------------------------------------------------------------------------


def _start_there(place: _Place, record: DriverRecord, submission: Submission, handed: SubmittedPlan) -> _Start:
    base = chosen_variables(os.environ, shared=True, more=place.settings.variables)
    variables = _variables(base, submission, handed, record)
    return _Start(f"exec {shlex.join(_supervisor(record))}", variables, record.working_directory, record.log_path)


def _start_elsewhere(
    place: _Place,
    record: DriverRecord,
    submission: Submission,
    handed: SubmittedPlan,
    sent: SentDriver,
    say: Say,
) -> _Start:
    """The same for a machine without our files; everything it needs is below the prefix afterwards."""
    settings = place.settings
    archive = publish(sent.archive, handed.base, say)
    record.publish()
    variables = variables_of(sent, settings, submission.variables, handed.variables, submission.cluster or place.file)
    return _Start(script_of(record, sent.archive, archive, settings), variables, settings.scratch, log_there(settings))


def _submit_to(place: _Place, record: DriverRecord, start: _Start, say: Say) -> Submitted:
    resources = {name: value for name, value in place.site.driver_resources().items() if value is not None}
    request = JobRequest(
        name=record.name or record.id,
        tag=JobTag.of_driver(record.id),
        script=start.script,
        variables=start.variables,
        folder=start.folder,
        log=start.log,
        resources=resources,
        warning_seconds=_warning_seconds(resources),
    )
    queue = place.cluster.open_queue(place.file)
    try:
        ours = Holder(queue.cluster, _submitted(queue, request, record, say))
        holder = record.claim(ours)
        if not holder.is_same(ours):  # An earlier attempt was accepted after all, and its job was quicker.
            queue.cancel([str(ours.job)])
    finally:
        queue.close()
    return Submitted(record, holder, f"{holder}, {place.site.describe(resources)}")


def _warning_seconds(resources: Mapping[str, Any]) -> int:
    """How long before its time limit a driver restarts: in good time, but not right after it has begun."""
    minutes = resources.get("runtime")
    return _MOST_WARNING_SECONDS if minutes is None else min(_MOST_WARNING_SECONDS, minutes * 60 // 4)


def _submitted(queue: JobQueue, request: JobRequest, record: DriverRecord, say: Say) -> str:
    """The id of the driver's job. A submission without an answer may have been accepted: the queue is checked first."""
    for tries in range(1, _TRIES + 1):
        try:
            if tries > 1 and (found := _job_of(queue, record)) is not None:
                return found
            return queue.submit(request)
        except BusyError as error:
            if tries == _TRIES:
                raise ClusterError(
                    f"{queue.title} did not accept the driver: {error}. Submit it again later; if it accepted a job"
                    " after all, that job finds no record of itself and ends at once"
                ) from error
            say(f"{error}; will try again")
            time.sleep(pause_seconds(tries))
    raise AssertionError


def _job_of(queue: JobQueue, record: DriverRecord) -> str | None:
    jobs = (job for job in queue.jobs().values() if job.is_live and job.tag is not None)
    return next((job.id for job in jobs if job.tag is not None and job.tag == JobTag.of_driver(record.id)), None)
