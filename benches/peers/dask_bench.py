"""Dask's distributed scheduler on one machine, for graphs alone. See protocol.py for the cases."""

import logging

import distributed
from distributed import Client, LocalCluster, as_completed

import protocol
from protocol import WORKERS


class Cluster:
    """Worker processes of one thread each, all of which have answered."""

    def __init__(self, workers=WORKERS, **options):
        self.cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            **options,
        )
        self.client = Client(self.cluster)
        self.client.wait_for_workers(workers)
        self.client.run(int)

    def __enter__(self):
        return self.client

    def __exit__(self, *_):
        self.client.close()
        self.cluster.close()


def increment(x):
    return x + 1


def chain(count="2000"):
    count = int(count)

    def work(client):
        last = client.submit(increment, 0, pure=False)
        for _ in range(1, count):
            last = client.submit(increment, last, pure=False)
        assert last.result() == count

    with Cluster() as client:
        return {"values": [seconds / count for seconds in protocol.repeated(lambda: work(client))], "count": 1}


def fan(count="10000"):
    count = int(count)

    def work(client):
        futures = client.map(increment, range(count), pure=False)
        assert client.submit(sum, futures, pure=False).result() == count * (count + 1) // 2

    with Cluster() as client:
        return {"values": protocol.repeated(lambda: work(client)), "count": count}


def tree(count="5000"):
    count = int(count)

    def work(client):
        layer = client.map(increment, range(count), pure=False)
        while len(layer) > 1:
            pairs = [layer[place : place + 2] for place in range(0, len(layer), 2)]
            layer = client.map(sum, pairs, pure=False)
        assert layer[0].result() == count * (count + 1) // 2

    with Cluster() as client:
        return {"values": protocol.repeated(lambda: work(client)), "count": 2 * count}


RUN = 64 << 20


def run(seed):
    import numpy

    numbers = numpy.random.default_rng(seed).integers(0, 2**63, RUN // 8, dtype=numpy.uint64)
    numbers.sort()
    return numbers


def part(numbers, number, parts):
    import numpy

    bounds = numpy.array([2**63 * bound // parts for bound in (number, number + 1)], dtype=numpy.uint64)
    return numbers[slice(*numbers.searchsorted(bounds))].copy()


def merge(parts):
    import numpy

    merged = numpy.concatenate(parts)
    merged.sort()
    return merged


def check(numbers):
    assert (numbers[:-1] <= numbers[1:]).all()
    return len(numbers)


def sort(mebibytes, memory):
    runs = (int(mebibytes) << 20) // RUN

    def work(client):
        sorted_runs = client.map(run, range(runs), pure=False)
        merged = [
            client.submit(merge, [client.submit(part, each, number, runs) for each in sorted_runs])
            for number in range(runs)
        ]
        del sorted_runs
        counts = client.map(check, merged)
        del merged
        assert sum(client.gather(counts)) == runs * RUN // 8

    # A worker's memory is that of its values and of all else in its process.
    note = "each of two workers has so much memory"
    with Cluster(2, memory_limit=f"{memory}MiB") as client:
        return {"values": [protocol.timed(lambda: work(client))], "count": 1, "note": note}


def completed(count="10000"):
    count = int(count)

    def work(client):
        futures = client.map(increment, range(count), pure=False)
        total = sum(value for _, value in as_completed(futures, with_results=True))
        assert total == count * (count + 1) // 2

    with Cluster() as client:
        return {"values": protocol.repeated(lambda: work(client)), "count": count}


if __name__ == "__main__":
    # A warning on stderr for each large argument helps nobody here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    protocol.main(
        "dask",
        distributed.__version__,
        {
            "chain": chain,
            "fan": fan,
            "tree": tree,
            "sort": sort,
            "completed": completed,
        },
    )
