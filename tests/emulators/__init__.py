"""Object stores and the metadata server on loopback: real clients talk to them, tests steer and question them.

A test takes the fixtures of `emulators.fixtures`. Each store runs in a process of its own, so that a client which
blocks the interpreter cannot block the server it waits for. These are emulators: no real project confirmed them.
"""
