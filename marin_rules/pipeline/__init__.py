"""Step functions and their configs, from downloads to evaluations: a user of the rest of the package like any other.

Modules here import the public API alone, and heavy libraries only inside functions. Their sources are packed into the
plan, as those of the user's own modules are: an edit during a run changes nothing that was planned.
"""
