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
        localrule: marin.is_local(function)
        conda:
            marin.conda(function)
        threads: marin.threads(function)
        resources:
            **marin.resources(function),
        params:
            command=marin.command(function),
        shell:
            "{params.command} {wildcards.step} --log={log} --cores={threads}"
