# Loads the experiment: `marin` is what all rules ask for targets, inputs and commands.
from marin_rules.settings.locations import config_file
from marin_rules.engine.workflow import load


configfile: config_file()


storage:
    provider="marin",


marin = load(workflow, config, storage.marin)


def report_items(wildcards):
    return [report(item.path, **item.options) for item in marin.report_items(wildcards)]
