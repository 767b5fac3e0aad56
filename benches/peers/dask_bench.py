"""Dask's distributed scheduler on one machine. See protocol.py for the cases."""

import array
import logging
import time

import distributed
from distributed import Client, LocalCluster, as_completed, wait

import protocol
from protocol import MIB, READY_WORKERS, WORKERS


def nothing(_):
    return None


def nap(seconds, _=None):
    time.sleep(seconds)


def echo(data):
    return data


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


def noop(count="5000"):
    count = int(count)
    with Cluster() as client:
        # pure=False: else Dask would answer the second run from what it knows.
        values = protocol.repeated(lambda: client.gather(client.map(nothing, range(count), pure=False)))
    return {"values": values, "count": count}


def increment_all(numbers):
    return array.array("q", (x + 1 for x in numbers))


def map_(count="1000000"):
    count = int(count)
    parts = 4 * WORKERS
    ranges = [range(part * count // parts, (part + 1) * count // parts) for part in range(parts)]
    with Cluster() as client:
        values = protocol.repeated(lambda: client.gather(client.map(increment_all, ranges, pure=False)))
    # A list of integers takes Dask some 30 µs for each of them, in dask.bag too: a million takes more than a minute.
    return {"values": values, "count": count, "note": "20 tasks over a range each, whose results are arrays, not lists"}


def sleep(tasks, seconds):
    tasks, seconds = int(tasks), float(seconds)
    with Cluster() as client:
        values = protocol.repeated(lambda: client.gather(client.map(nap, [seconds] * tasks, range(tasks), pure=False)))
    return {"values": values, "count": tasks}


def apply(count="200"):
    with Cluster() as client:
        return {
            "values": protocol.round_trips(lambda: client.submit(nothing, None, pure=False).result(), int(count)),
            "count": 1,
        }


def bytes_(count="64"):
    count = int(count)
    data = bytes(MIB)
    with Cluster() as client:

        def work():
            futures = [client.submit(echo, data, pure=False) for _ in range(count)]
            wait(futures)
            for result in client.gather(futures):
                assert len(result) == MIB

        return {"values": protocol.repeated(work), "count": 2 * MIB * count}


def ready(method="default"):
    values = []
    for _ in range(protocol.REPEATS):
        start = time.perf_counter()
        with Cluster(READY_WORKERS):
            values.append(time.perf_counter() - start)
    return {"values": values, "count": 1, "note": "LocalCluster and a client, all workers having answered"}


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
        return {"values": protocol.repeated(lambda: work(client)), "count": count}


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
            "noop": noop,
            "map": map_,
            "sleep": sleep,
            "apply": apply,
            "bytes": bytes_,
            "ready": ready,
            "chain": chain,
            "fan": fan,
            "tree": tree,
            "completed": completed,
        },
    )
