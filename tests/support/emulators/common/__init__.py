"""What the emulators of both stores share: the front with its faults and logs, and the handle that tests hold."""
