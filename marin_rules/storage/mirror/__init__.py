"""`mirror://path`: data that may live in another region's bucket, copied once into the prefix when first read.

`install` makes it known, `filesystem` is what fsspec opens. `search` finds data in all places, `copies` brings them
here: under a lease (`rights`), charged before the first byte, moved by `rewrites` or `streams`. Nothing below the
prefix ever shows a part of a copy.

Importing this package imports nothing else: a step that mirrors nothing pays nothing.
"""
