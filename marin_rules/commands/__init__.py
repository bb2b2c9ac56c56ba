"""The commands of `marin-rules`, one a file. They only parse, call and print; `main` is the program."""
