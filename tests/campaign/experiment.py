"""The experiment of a case: `case.json` beside it names the steps. It shares no code with the judge.

A step notes in the witness folder what it does, reads the data of its inputs, and behaves as its case says. In the
first round the bad ways are taken; in the second one each step does its work.
"""

import atexit
import concurrent.futures
import ctypes
import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, versioned

KEPT = []


# -- what all steps do ---------------------------------------------------------------------------------------


def folder(path):
    return path.removeprefix("file://")


def current_round(config):
    with open(os.path.join(config["witness"], "round")) as file:
        return int(file.read())


def note(config, *words):
    """One line in the witness of the step, whole whatever else happens."""
    line = " ".join([str(current_round(config)), *map(str, words)]) + "\n"
    descriptor = os.open(
        os.path.join(config["witness"], f"{config['index']}.events"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
    )
    os.write(descriptor, line.encode())
    os.close(descriptor)


def content(config, file="data"):
    digest = hashlib.sha256(f"{config['name']}\0{config['version']}\0{file}".encode())
    for path in config["inputs"]:
        with open(os.path.join(folder(path), "data"), "rb") as source:
            digest.update(source.read())
    return digest.hexdigest() * 40


def write(config, file="data", part=1.0):
    text = content(config, file)
    with open(os.path.join(folder(config["out"]), file), "w") as target:
        target.write(text[: int(len(text) * part)])


def write_late(config):
    time.sleep(0.3)
    write(config, "late")


def misbehaves(config):
    """Notes the start; whether this is the round in which bad ways are taken."""
    note(config, "start", os.getpid())
    return current_round(config) == 1


def wait_at_the_gate(config, is_stopped=lambda: False):
    note(config, "waits", os.getpid())
    while not os.path.exists(os.path.join(config["witness"], "gate")) and not is_stopped():
        time.sleep(0.02)


# -- whole: plain Python would end well, with all data --------------------------------------------------------


def plain(config):
    misbehaves(config)
    write(config)


def thread(config):
    misbehaves(config)
    write(config)
    threading.Thread(target=write_late, args=[config]).start()


def thread_pool(config):
    misbehaves(config)
    write(config)
    concurrent.futures.ThreadPoolExecutor(2).submit(write_late, config)


def at_exit(config):
    misbehaves(config)
    write(config)
    atexit.register(write, config, "late")


def child_process(config):
    misbehaves(config)
    write(config)
    multiprocessing.get_context("fork").Process(target=write_late, args=[config]).start()


def spawned_process(config):
    misbehaves(config)
    write(config)
    multiprocessing.get_context("spawn").Process(target=write_late, args=[config]).start()


def square(number):
    return number * number


def process_pool(config):
    misbehaves(config)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
    write(config)


def unflushed(config):
    misbehaves(config)
    write(config)
    KEPT.append(open(os.path.join(folder(config["out"]), "late"), "w"))  # noqa: SIM115
    KEPT[-1].write(content(config, "late"))


def child_returns(config):
    misbehaves(config)
    child = os.fork()
    if child == 0:
        return {"by": "child"}
    os.waitpid(child, 0)
    write(config)
    return {"by": "parent"}


def child_exits(config):
    misbehaves(config)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    write(config)


def child_raises(config):
    misbehaves(config)
    child = os.fork()
    if child == 0:
        raise RuntimeError("only the child")
    os.waitpid(child, 0)
    write(config)


def prints_much(config):
    misbehaves(config)
    for _ in range(60):
        os.write(1, b"x" * 49_000 + b"\xff\xfe\n")
        print("y" * 3_000, file=sys.stderr)
    print("no end of line", end="")
    write(config)


def closes_streams(config):
    misbehaves(config)
    write(config)
    for descriptor in (0, 1, 2):
        os.close(descriptor)


def changes_its_process(config):
    misbehaves(config)
    write(config)
    os.umask(0o777)
    os.chdir("/")
    os.environ.clear()
    sys.stdout = sys.stderr = None
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def leaves_children(config):
    misbehaves(config)
    write(config)
    for alone in (False, True):
        child = subprocess.Popen(["sleep", "1000"], start_new_session=alone)
        note(config, "leaves", child.pid)
    threading.Thread(target=time.sleep, args=[1000], daemon=True).start()


def leaves_a_strangers_child(config):
    misbehaves(config)
    write(config)
    if os.getuid() == 0:
        child = subprocess.Popen(["sleep", "1000"], user=54321, group=54321, extra_groups=[])
        note(config, "leaves", child.pid)


@dataclasses.dataclass
class Scores:
    loss: float
    names: list


class Hostile:
    def __repr__(self):
        raise RuntimeError("no text")


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def returns_something(config):
    misbehaves(config)
    write(config)
    values = {
        "nothing": None,
        "numbers": {"loss": 0.5, "steps": 3},
        "dataclass": Scores(0.5, ["a"]),
        "not a number": {"loss": math.nan, "best": math.inf},
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "hostile": Hostile(),
        "deep": nested(3_000),
        "keys": {(1, 2): 3, None: 4},
        "surrogate": "\ud800",
        "large": "z" * 2_000_000,
        "function": print,
    }
    value = values[config["option"]]
    note(config, "returns", config["option"].replace(" ", "_"))
    return value


# -- not whole: data are there, but the step has failed ---------------------------------------------------------


def raises(config):
    if misbehaves(config):
        write(config)
        errors = {
            "text": RuntimeError("no\nluck <b>{today}</b> \u2603"),
            "nothing": RuntimeError(),
            "hostile": type("Odd", (Exception,), {"__str__": lambda self: 1 / 0})(),
            "interrupt": KeyboardInterrupt(),
            "exit": SystemExit(3),
            "exit text": SystemExit("enough"),
            "memory": MemoryError(),
        }
        raise errors[config["option"]]
    write(config)


def recurses(config):
    if misbehaves(config):
        write(config)
        recurses_on(1)
    write(config)


def recurses_on(depth):
    return recurses_on(depth + 1) + 1


def vanishes(config):
    if misbehaves(config):
        write(config)
        os._exit(int(config["option"]))
    write(config)


def kills_itself(config):
    if misbehaves(config):
        write(config)
        os.kill(os.getpid(), int(config["option"]))
        time.sleep(30)
    write(config)


def crashes(config):
    if misbehaves(config):
        write(config)
        ctypes.string_at(0)
    write(config)


def child_returns_parent_raises(config):
    if misbehaves(config):
        child = os.fork()
        if child == 0:
            write(config)
            return {"by": "child"}
        os.waitpid(child, 0)
        raise RuntimeError("only the parent")
    write(config)


def exits_in_a_thread_of_its_own(config):
    """A thread that fails does not make a program fail; one that ends the process does."""
    if misbehaves(config):
        write(config)
        stopper = threading.Thread(target=os._exit, args=[5])
        stopper.start()
        stopper.join()
    write(config)


# -- either: only what holds for every step must hold ----------------------------------------------------------


def empties_its_folder(config):
    misbehaves(config)
    if current_round(config) == 1:
        shutil.rmtree(folder(config["out"]))
        os.makedirs(folder(config["out"]))
    write(config)


# -- at the gate: these are there when a signal comes ------------------------------------------------------------


def waits(config):
    misbehaves(config)
    wait_at_the_gate(config)
    write(config)


def saves_and_returns(config):
    """What a training loop does: told to stop, it saves what it has and returns."""
    misbehaves(config)
    told = []

    def stop(number, frame):
        note(config, "told", number)
        told.append(number)

    signal.signal(signal.SIGTERM, stop)
    wait_at_the_gate(config, lambda: bool(told))
    write(config, part=0.5 if told else 1.0)


def exits_when_told(config):
    misbehaves(config)

    def stop(number, frame):
        write(config, part=0.5)
        note(config, "told", number)
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    wait_at_the_gate(config)
    write(config)


def is_deaf(config):
    misbehaves(config)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_at_the_gate(config)
    write(config)


# -- refused: these cannot be steps ------------------------------------------------------------------------------


async def asynchronous(config):
    plain(config)


def generates(config):
    plain(config)
    yield 1


def takes_nothing():
    raise AssertionError("nobody can call this with a config")


def steps(case):
    made = []
    version = int(os.environ.get("CAMPAIGN_VERSION", "1"))
    for index, step in enumerate(case["steps"]):
        is_shared = step["override"] is not None
        config = {
            "name": step["name"],
            "index": index,
            "option": step["option"],
            "inputs": [made[number] for number in step["inputs"]],
            "version": versioned(version if is_shared else 1),
            "out": THIS_OUTPUT_PATH,
            "witness": case["witness"],
        }
        made.append(
            ExecutorStep(
                name=step["name"],
                fn=globals()[step["behaviour"]],
                config=config,
                override_output_path=step["override"],
            )
        )
    return made


if __name__ == "__main__":
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "case.json")) as described:
        executor_main(steps=steps(json.load(described)))
