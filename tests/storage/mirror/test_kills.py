"""A worker is killed at each point of a copy where it talks to a disk or a store: the next reader gets the right bytes.

A forked child counts the points that it passes, and kills itself at one of them; the number goes up until a child gets
through.
"""

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import requests
from botocore.httpsession import URLLib3Session
from gcsfs import GCSFileSystem
from s3fs import S3FileSystem

from support.mirror_world import World, spent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

DATA = os.urandom(2**20 + 100)
MOST_POINTS = 400
LOCAL_CALLS = ("open", "link", "unlink", "rename", "replace", "fsync", "mkdir", "write")


class Killer:
    """Kills this process before or after its `number`th call to the outside."""

    def __init__(self, number: int) -> None:
        self._left = number

    def point(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def install(self) -> None:
        for name in LOCAL_CALLS:
            setattr(os, name, self._around(getattr(os, name)))
        requests.Session.send = self._around(requests.Session.send)
        URLLib3Session.send = self._around(URLLib3Session.send)
        GCSFileSystem._request = self._around_coroutine(GCSFileSystem._request)
        S3FileSystem._call_s3 = self._around_coroutine(S3FileSystem._call_s3)

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            self.point()
            result = function(*arguments, **options)
            self.point()
            return result

        return call

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*arguments: Any, **options: Any) -> Any:
            self.point()
            result = await function(*arguments, **options)
            self.point()
            return result

        return call


def child_killed_at(number: int, do: Callable[[], None]) -> bool:
    """Whether it was killed; otherwise it must have succeeded."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            Killer(number).install()
            do()
            status = 0
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def kill_one_by_one(world: World, names: list[str], points: range) -> int:
    """Kill a copy at each of the points, and read after each; how many points it had."""
    for name in names:
        world.store.put("far", name, DATA)

    def copy() -> None:
        if len(names) == 1:
            world.fs.cat_file(names[0])
        else:
            world.fs.prefetch("tree")

    for number in points:
        was_killed = child_killed_at(number, copy)
        present = [name for name in world.at_home() if name in names]
        assert all(world.content(name) == DATA for name in present)
        assert world.fs.find("") == sorted(names)
        before = spent()
        assert [world.fs.cat_file(name) for name in names] == [DATA] * len(names)
        assert spent() - before == len(DATA) * (len(names) - len(present))
        # Again from the beginning, over what the killed one has left.
        world.fs.rm(names)
        assert [world.fs.cat_file(name) for name in names] == [DATA] * len(names)
        # A killed writer of a lease may leave some bytes beside it.
        assert [name for name in world.at_home() if not name.startswith(".mirror/.marin-rules-")] == sorted(names)
        world.fs.rm(names)
        if not was_killed:
            return number
    return points.stop


WAYS = [("gs-gs", 1), ("gs-file", 1), ("s3-s3", 1), ("s3-file", 1), ("gs-gs", 3), ("gs-file", 3)]


@pytest.mark.parametrize(("kinds", "files"), [way for way in WAYS if way[0].startswith("gs")])
def test_killed_at_some_points(make_world: Callable[[str, str], World], kinds: str, files: int) -> None:
    world = make_world(*kinds.split("-"))
    names = [f"tree/{number}" for number in range(files)]
    kill_one_by_one(world, names, range(5, 40, 7))


@pytest.mark.faults
@pytest.mark.parametrize(("kinds", "files"), WAYS)
def test_killed_at_every_point(make_world: Callable[[str, str], World], kinds: str, files: int) -> None:
    world = make_world(*kinds.split("-"))
    names = [f"tree/{number}" for number in range(files)]
    assert 10 < kill_one_by_one(world, names, range(MOST_POINTS)) < MOST_POINTS
