"""A step whose processes find each other: source for experiment files.

The processes meet at `coordinator_address`, as those of jax.distributed or torch would: rank 0 listens there, the
others connect and say who they are, and rank 0 answers with all it has heard.
"""

MEET = """
    import json, os, socket, time
    from dataclasses import asdict, dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH

    def in_a_fork():
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, json.dumps(asdict(this_process())).encode())
            os._exit(0)
        os.waitpid(child, 0)
        return json.loads(os.read(read, 10_000))

    def meet(process):
        if process.coordinator_address is None:
            return [process.rank]
        host, _, port = process.coordinator_address.rpartition(":")
        if process.rank == 0:
            heard = {0: None}
            with socket.create_server(("", int(port))) as server:
                while len(heard) < process.count:
                    connection = server.accept()[0]
                    heard[int(connection.makefile().readline())] = connection
            for connection in filter(None, heard.values()):
                connection.sendall(f"{json.dumps(sorted(heard))}\\\\n".encode())
            return sorted(heard)
        while True:
            try:
                connection = socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)  # Rank 0 may not listen yet.
        connection.sendall(f"{process.rank}\\\\n".encode())
        return json.loads(connection.makefile().readline())

    def look(config):
        process = this_process()
        seen = {"process": asdict(process), "fork": in_a_fork(), "met": meet(process), "variables": dict(os.environ)}
        with open(os.path.join(config.output_path, f"seen-{process.rank}.json"), "w") as file:
            json.dump(seen, file)
        return process.rank

    def step(name, env_vars=None, **resources):
        resources = ResourceConfig(**{"ram": "300m", **resources})
        return ExecutorStep(name, remote(look, resources=resources, env_vars=env_vars), Config())
    """


def meeting(steps: str) -> str:
    """An experiment of the steps `step(name, env_vars=, **resources), ...`; each process writes `seen-RANK.json`."""
    return f"{MEET}\n    if __name__ == '__main__':\n        executor_main(steps=[{steps}])\n".replace("\\\\n", "\\n")
