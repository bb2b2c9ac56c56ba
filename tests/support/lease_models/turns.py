"""Threads that run one at a time, each up to its next pause, in an order drawn from a seed; and their time."""

import random
import threading
from collections.abc import Callable

DEADLINE = 60.0
"""Seconds after which a thread that gets no turn has been forgotten. Not reached when all is well."""


class Stopped(BaseException):
    """Another thread has failed: no more turns."""


class Turns:
    """Gives turns. Time passes only here: a little with each turn, and up to the first who wakes while all sleep."""

    def __init__(self, count: int, seed: int, *, longest_tick: float, longest_nap: float, naps: float) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.turns = 0
        self._longest_tick, self._longest_nap, self._naps = longest_tick, longest_nap, naps
        self._wakes = dict.fromkeys(range(count), 0.0)
        self._go = [threading.Semaphore(0) for _ in range(count)]
        self._over = threading.Semaphore(0)
        self._error: BaseException | None = None

    def play(self, programs: list[Callable[[], None]]) -> None:
        """Run all programs to their ends; the first error of any is raised here."""
        threads = [threading.Thread(target=self._run, args=each, daemon=True) for each in enumerate(programs)]
        for thread in threads:
            thread.start()
        self._go[0].release()
        for _ in threads:
            assert self._over.acquire(timeout=600)
        if self._error is not None:
            raise self._error

    def pause(self, who: int, seconds: float = 0.0) -> None:
        """Wait for my next turn, which comes after `seconds` at the earliest."""
        if seconds == 0.0 and self.chance.random() < self._naps:
            seconds = self.chance.uniform(0.0, self._longest_nap)
        self._wakes[who] = self.now + seconds
        following = self._pick()
        if following != who:
            self._go[following].release()
            assert self._go[who].acquire(timeout=DEADLINE)
        if self._error is not None:
            raise Stopped

    def _pick(self) -> int:
        self.turns += 1
        self.now += self.chance.uniform(0.0, self._longest_tick)
        awake = [who for who, wakes in self._wakes.items() if wakes <= self.now]
        if not awake:
            self.now = min(self._wakes.values())
            awake = [who for who, wakes in self._wakes.items() if wakes <= self.now]
        return self.chance.choice(awake)

    def _run(self, who: int, program: Callable[[], None]) -> None:
        assert self._go[who].acquire(timeout=DEADLINE)
        try:
            if self._error is None:
                program()
        except Stopped:
            pass
        except BaseException as error:
            self._error = self._error or error
        del self._wakes[who]
        if self._wakes:
            self._go[self._pick()].release()
        self._over.release()
