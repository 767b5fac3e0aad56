"""HyperQueue beside `fiber map`: hyperqueue_bench.py commands N PROGRAM."""

import importlib.metadata
import tempfile
import time

import protocol
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def commands(count, program):
    """That many runs of a program, from a server and a worker that are ready."""
    count = int(count)
    with tempfile.TemporaryDirectory() as directory, LocalCluster(directory) as cluster:
        cluster.start_worker(WorkerConfig(cores=protocol.cpus()))
        client = cluster.client()

        def run(tasks):
            job = Job()
            for _ in range(tasks):
                job.program([program], stdout=None, stderr=None)
            start = time.perf_counter()
            client.wait_for_jobs([client.submit(job)])
            return time.perf_counter() - start

        run(10)
        values = []
        while len(values) < protocol.REPEATS and sum(values) < protocol.PATIENCE_SECONDS:
            values.append(run(count))
    return {"values": values, "count": count, "note": "Its server and worker are ready before."}


if __name__ == "__main__":
    protocol.main("hyperqueue", importlib.metadata.version("hyperqueue"), {"commands": commands})
