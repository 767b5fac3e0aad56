"""Python's multiprocessing, from the standard library alone. See protocol.py for the cases."""

import multiprocessing
import platform
import time
from multiprocessing.managers import BaseManager

import protocol
from protocol import MIB, READY_WORKERS, WORKERS


def nothing(_):
    return None


def increment(x):
    return x + 1


def sleep(seconds):
    time.sleep(seconds)


def echo(data):
    return data


# The barrier of the warm-up, inherited by the workers: synchronization primitives can't be sent as arguments.
_barrier = None


def _take_barrier(barrier):
    global _barrier
    _barrier = barrier


def _meet(_):
    _barrier.wait()


def warm_pool(workers=WORKERS):
    """A pool whose workers have all answered: none can take a second task before all hold one."""
    pool = multiprocessing.Pool(workers, _take_barrier, (multiprocessing.Barrier(workers),))
    pool.map(_meet, range(workers), chunksize=1)
    return pool


def drain(results):
    count = 0
    for _ in results:
        count += 1
    return count


def noop(count="20000"):
    count = int(count)
    with warm_pool() as pool:
        values = protocol.repeated(lambda: drain(pool.imap_unordered(nothing, range(count), chunksize=1)))
    return {"values": values, "count": count, "start_method": multiprocessing.get_start_method()}


def map_(count="1000000"):
    count = int(count)
    with warm_pool() as pool:
        values = protocol.repeated(lambda: pool.map(increment, range(count)))
    return {"values": values, "count": count}


def sleep_(tasks, seconds):
    tasks, seconds = int(tasks), float(seconds)
    with warm_pool() as pool:
        values = protocol.repeated(lambda: drain(pool.imap_unordered(sleep, [seconds] * tasks, chunksize=1)))
    return {"values": values, "count": tasks}


def apply(count="2000"):
    with warm_pool() as pool:
        return {"values": protocol.round_trips(lambda: pool.apply(nothing, (None,)), int(count)), "count": 1}


def bytes_(count="64"):
    count = int(count)
    data = bytes(MIB)
    with warm_pool() as pool:
        values = protocol.repeated(lambda: drain(pool.imap_unordered(echo, [data] * count, chunksize=1)))
    return {"values": values, "count": 2 * MIB * count}


def ready():
    values = []
    for _ in range(protocol.REPEATS + 2):
        start = time.perf_counter()
        with warm_pool(READY_WORKERS):
            values.append(time.perf_counter() - start)
    return {"values": values, "count": 1}


def _produce(begin, queue):
    while (count := begin.get()) is not None:
        for n in range(count):
            queue.put(n)


def queue(count="200000"):
    count = int(count)
    begin, elements = multiprocessing.SimpleQueue(), multiprocessing.Queue()
    process = multiprocessing.Process(target=_produce, args=(begin, elements), daemon=True)
    process.start()

    def transfer():
        begin.put(count)
        for _ in range(count):
            elements.get()

    values = protocol.repeated(transfer)
    begin.put(None)
    process.join()
    return {"values": values, "count": count}


class Counter:
    def __init__(self):
        self.value = 0

    def add(self, by):
        self.value += by
        return self.value


class CounterManager(BaseManager):
    pass


CounterManager.register("Counter", Counter)


def manager(count="2000"):
    with CounterManager() as manager:
        counter = manager.Counter()
        return {"values": protocol.round_trips(lambda: counter.add(1), int(count)), "count": 1}


if __name__ == "__main__":
    protocol.main(
        "multiprocessing",
        platform.python_version(),
        {
            "noop": noop,
            "map": map_,
            "sleep": sleep_,
            "apply": apply,
            "bytes": bytes_,
            "ready": ready,
            "queue": queue,
            "manager": manager,
        },
    )
