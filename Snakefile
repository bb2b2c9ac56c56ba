# Marin's experiment model on Snakemake. An experiment is a Python file of steps (config/config.yaml names it);
# here its steps become jobs: one rule a step function, one target a step.
from snakemake.utils import min_version

min_version("9.27")


report: "rules/report.rst"


include: "rules/common.smk"


rule all:
    input:
        marin.requested,
        report_items,


include: "rules/steps.smk"


for rule_file in marin.rule_files:

    include: rule_file


onstart:
    marin.start()


onsuccess:
    marin.finish(success=True)


onerror:
    marin.finish(success=False)
