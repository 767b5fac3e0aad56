"""joblib with its default processes (loky). See protocol.py for the cases."""

import os
import tempfile
import time

import joblib
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

import protocol
from protocol import MIB, READY_WORKERS, WORKERS


def nothing(_):
    return None


def increment(x):
    return x + 1


def echo(data):
    return data


def pid_after(seconds):
    time.sleep(seconds)
    return os.getpid()


def one_by_one():
    return Parallel(n_jobs=WORKERS, backend="loky", batch_size=1, pre_dispatch="all", return_as="generator_unordered")


def drain(results):
    for _ in results:
        pass


def warm(workers=WORKERS, seconds=0.2):
    """Starts the workers, which loky keeps for the calls after, and waits until each has answered."""
    while len(set(Parallel(workers, batch_size=1)(delayed(pid_after)(seconds) for _ in range(workers)))) < workers:
        pass


def noop(count="20000"):
    count = int(count)
    warm()
    values = protocol.repeated(lambda: drain(one_by_one()(delayed(nothing)(i) for i in range(count))))
    return {"values": values, "count": count}


def map_(count="100000"):
    count = int(count)
    warm()
    values = protocol.repeated(lambda: Parallel(n_jobs=WORKERS)(delayed(increment)(i) for i in range(count)))
    return {"values": values, "count": count, "note": "batch_size='auto', a tenth of the integers"}


def cached_call(memory, x):
    return memory.cache(increment)(x)


def durable(count="5000"):
    count = int(count)
    warm()
    values = []
    for _ in range(protocol.REPEATS):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            memory = joblib.Memory(folder, verbose=0)
            values.append(protocol.timed(lambda: Parallel(n_jobs=WORKERS)(delayed(cached_call)(memory, i) for i in range(count))))
    return {"values": values, "count": count, "note": "joblib.Memory, without fsync, a four hundredth of the tasks"}


def recorded(count="5000"):
    count = int(count)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        cached = joblib.Memory(folder, verbose=0).cache(increment)
        for i in range(count):
            cached(i)
        values = protocol.repeated(lambda: [cached(i) for i in range(count)])
    return {"values": values, "count": count, "note": "joblib.Memory, a four hundredth of the results"}


def sleep(tasks, seconds):
    tasks, seconds = int(tasks), float(seconds)
    warm()
    values = protocol.repeated(lambda: drain(one_by_one()(delayed(time.sleep)(seconds) for _ in range(tasks))))
    return {"values": values, "count": tasks}


def apply(count="500"):
    warm()
    executor = get_reusable_executor()
    return {
        "values": protocol.round_trips(lambda: executor.submit(nothing, None).result(), int(count)),
        "count": 1,
        "note": "submit to loky's executor, which Parallel stands on",
    }


def bytes_(count="64"):
    count = int(count)
    data = bytes(MIB)
    warm()
    values = protocol.repeated(lambda: drain(one_by_one()(delayed(echo)(data) for _ in range(count))))
    return {"values": values, "count": 2 * MIB * count}


def add_one(array):
    return array + 1


def total(array):
    return float(array.sum())


def arrays(count="64"):
    import numpy

    count = int(count)
    warm(2)

    def work():
        items = (delayed(add_one)(numpy.ones(16 * MIB // 8)) for _ in range(count))
        for result in Parallel(n_jobs=2, batch_size=1, return_as="generator")(items):
            assert result[-1] == 2

    return {"values": protocol.repeated(work), "count": 32 * MIB * count}


def broadcast():
    import numpy

    array = numpy.ones(256 * MIB // 8)
    warm(4)

    def work():
        totals = Parallel(n_jobs=4, batch_size=1)(delayed(total)(array) for _ in range(16))
        assert all(each == len(array) for each in totals)

    return {"values": protocol.repeated(work), "count": 1}


def ready():
    values = []
    for _ in range(protocol.REPEATS):
        start = time.perf_counter()
        warm(READY_WORKERS, 0)
        values.append(time.perf_counter() - start)
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
    return {"values": values, "count": 1}


if __name__ == "__main__":
    protocol.main(
        "joblib",
        joblib.__version__,
        {"noop": noop, "map": map_, "durable": durable, "recorded": recorded, "sleep": sleep, "apply": apply, "bytes": bytes_, "arrays": arrays, "broadcast": broadcast, "ready": ready},
    )
