"""`mirror://path`: data that may live in another region's bucket, copied once into the prefix when first read.

`install` registers it, `filesystem` is what fsspec opens. `search` finds data in all places, `copies` fetches it: under
a lease (`rights`), charged before the first byte, moved by `rewrites` or `streams`. Nothing below the prefix ever shows
a part of a copy.

Importing this package imports nothing else: it costs nothing in a step that does not mirror.
"""
