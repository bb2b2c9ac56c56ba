"""`marin-rules` itself: which command is meant, what is imported for it, and which exit code its end becomes."""

from __future__ import annotations

import argparse
import pkgutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from marin_rules import commands
from marin_rules.commands import main as program
from marin_rules.commands.main import COMMANDS, main
from marin_rules.errors import SettingsError

NOT_COMMANDS = {"main", "output", "step_arguments"}


def usage_error(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def test_every_command_has_its_module_and_every_module_its_command() -> None:
    modules = {module.name for module in pkgutil.iter_modules(commands.__path__)}
    assert modules - NOT_COMMANDS == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error(name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: marin-rules {name} ")


@pytest.mark.processes
def test_the_help_names_all_commands_and_imports_none() -> None:
    script = """
import sys
from marin_rules.commands.main import main
try:
    main(["--help"])
finally:
    print(*(name for name in sys.modules if name.startswith("marin_rules")), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    inside_rooms = [name for name in ran.stderr.split() if name.count(".") > 1]
    assert inside_rooms == ["marin_rules.commands.main"]
    for name, purpose in COMMANDS.items():
        assert f"    {name} " in ran.stdout
        assert purpose.split()[0] in ran.stdout


@pytest.mark.parametrize(
    "words",
    [[], ["nosuch"], ["--nosuch"], ["profiles", "unlink"], ["jobs"], ["jobs", "end"], ["show"], ["cluster"]],
)
def test_a_command_line_that_means_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error(*words) == 2
    assert capsys.readouterr().err.startswith("usage: marin-rules ")


def test_only_some_commands_take_words_for_another_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error("snakefile", "--", "-n") == 2
    assert "only `lock`, `run` and `submit` take arguments after `--`" in capsys.readouterr().err
    assert main(["snakefile", "--"]) == 0


def fail(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SettingsError("write it so"), 1, "marin-rules: write it so\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "marin-rules: [Errno 13] Permission denied: '/x'\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_how_a_command_fails(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from marin_rules.commands import snakefile

    monkeypatch.setattr(snakefile, "_print_path", fail(error))
    assert main(["snakefile"]) == code
    assert capsys.readouterr().err == said


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    from marin_rules.commands import snakefile

    monkeypatch.setattr(snakefile, "_print_path", fail(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["snakefile"])


@pytest.mark.processes
def test_whoever_reads_may_have_seen_enough() -> None:
    """`marin-rules jobs list | head -0`: no traceback, neither from the command nor at Python's end."""
    words = [sys.executable, "-c", "from marin_rules.commands.main import main; raise SystemExit(main(['snakefile']))"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_the_command_line_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["marin-rules", "--version"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
