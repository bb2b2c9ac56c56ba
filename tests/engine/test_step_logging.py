"""What steps log with `logging` is seen and kept, at a level that a variable sets; Snakemake's own messages are not."""

import pytest

from support.lab import Lab

LOGGING = """
    import logging
    from marin_rules import ExecutorStep, THIS_OUTPUT_PATH, executor_main

    logging.basicConfig(level=logging.INFO)
    logger = logging.getLogger(__name__)

    def speak(path):
        logger.debug("a detail")
        logger.info("a message")
        logging.getLogger("library").warning("a warning")

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name="speaker", fn=speak, config=THIS_OUTPUT_PATH)])
"""


@pytest.mark.parametrize("door", ["snakemake", "python"])
@pytest.mark.parametrize(
    ("level", "seen"),
    [
        (None, ["INFO __main__: a message", "WARNING library: a warning"]),
        ("debug", ["DEBUG __main__: a detail", "INFO __main__: a message", "WARNING library: a warning"]),
        ("30", ["WARNING library: a warning"]),
        ("loud", ["LOUD is not a logging level; using INFO", "INFO __main__: a message", "WARNING library: a warning"]),
    ],
)
def test_what_a_step_logs(door: str, level: str | None, seen: list[str], lab: Lab) -> None:
    path = lab.experiment(LOGGING)
    env = {} if level is None else {"MARIN_LOG_LEVEL": level}
    run = (
        lab.snakemake(experiment=path, env=env)
        if door == "snakemake"
        else lab.python(path, "--prefix", lab.prefix, env=env)
    )
    assert run.code == 0, run.output
    log = (lab.folder_of("speaker") / ".executor_log").read_text()
    everything = (
        "DEBUG __main__: a detail",
        "INFO __main__: a message",
        "WARNING library: a warning",
        "is not a logging level",
    )
    for text in (log, run.output):
        assert [words for words in seen if words not in text] == []
        assert sum(text.count(words) for words in everything) == len(seen)
    assert "snakemake.logging" not in run.output
