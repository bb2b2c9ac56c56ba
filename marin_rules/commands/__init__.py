"""The commands of `marin-rules` that are more than a line: one a file. They only parse, call and print."""
