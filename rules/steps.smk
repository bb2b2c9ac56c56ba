# One rule a step function. A job's target is the step's `<name>-<hash>`; it exists once the step's status is SUCCESS.
for function in marin.functions:

    rule:
        name:
            function
        input:
            marin.inputs,
        output:
            marin.target(function),
        log:
            marin.log,
        conda:
            marin.environment("steps.yaml")
        params:
            command=marin.command,
        shell:
            "{params.command} {wildcards.step} --log={log}"
