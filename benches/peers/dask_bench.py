"""Dask's distributed scheduler on one machine, for graphs alone. See protocol.py for the cases."""

import logging

import distributed
from distributed import Client, LocalCluster, as_completed

import protocol
from protocol import WORKERS


class Cluster:
    """Worker processes of one thread each, all of which have answered."""

    def __init__(self, workers=WORKERS):
        self.cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
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
            "completed": completed,
        },
    )
