# Rules of mixed.py. Included automatically, because it is beside the experiment and has the same name.
rule count_words:
    input:
        marin.inputs,
    output:
        marin.target("count_words"),
    log:
        marin.log,
    conda:
        marin.environment("text-tools.yaml")
    resources:
        mem_mb=1000,
    params:
        path=marin.output_path,
        config=marin.config,
    shell:
        marin.leased("""
            tr -s '[:space:]' '\\n' < {params.config[text_file]:q} | sort | uniq -c |
                awk '$1 >= {params.config[at_least]}' > {params.path:q}/counts.txt
            """)
