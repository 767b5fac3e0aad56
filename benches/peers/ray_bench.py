"""Ray on one machine. See protocol.py for the cases."""

import os
import time

# Read when Ray is imported: nothing is reported to anyone, and no warnings on the way.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.util.multiprocessing import Pool

import protocol
from protocol import MIB, READY_WORKERS, WORKERS


@ray.remote
def nothing():
    return None


@ray.remote
def nap(seconds):
    time.sleep(seconds)


@ray.remote
def echo(data):
    return data


@ray.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, by):
        self.value += by
        return self.value


def increment(x):
    return x + 1


def start(workers=WORKERS, **options):
    ray.init(num_cpus=workers, include_dashboard=False, logging_level="ERROR", log_to_driver=False, **options)


def warm(workers=WORKERS):
    start(workers)
    # Long enough that one worker can't take two: each of them starts and answers.
    ray.get([nap.remote(0.5) for _ in range(workers)])


def noop(count="20000"):
    count = int(count)
    warm()
    values = protocol.repeated(lambda: ray.get([nothing.remote() for _ in range(count)]))
    return {"values": values, "count": count}


def map_(count="1000000"):
    count = int(count)
    warm()
    with Pool(WORKERS) as pool:
        pool.map(increment, range(1000))
        values = protocol.repeated(lambda: pool.map(increment, range(count)))
    return {"values": values, "count": count, "note": "ray.util.multiprocessing.Pool.map, which makes chunks by itself"}


def sleep(tasks, seconds):
    tasks, seconds = int(tasks), float(seconds)
    warm()
    values = protocol.repeated(lambda: ray.get([nap.remote(seconds) for _ in range(tasks)]))
    return {"values": values, "count": tasks}


def apply(count="500"):
    warm()
    return {"values": protocol.round_trips(lambda: ray.get(nothing.remote()), int(count)), "count": 1}


def bytes_(count="64"):
    count = int(count)
    data = bytes(MIB)
    warm()

    def work():
        # No put(): each argument is its own, as in the other libraries.
        for result in ray.get([echo.remote(data) for _ in range(count)]):
            assert len(result) == MIB

    return {"values": protocol.repeated(work), "count": 2 * MIB * count, "note": "results stay in shared memory"}


@ray.remote
def add_one(array):
    return array + 1


@ray.remote
def total(array):
    return float(array.sum())


def arrays(count="64"):
    import numpy

    count = int(count)
    warm(2)

    def work():
        pending = [add_one.remote(numpy.ones(16 * MIB // 8)) for _ in range(count)]
        for result in pending:
            assert ray.get(result)[-1] == 2

    return {"values": protocol.repeated(work), "count": 32 * MIB * count}


def broadcast():
    import numpy

    array = numpy.ones(256 * MIB // 8)
    warm(4)

    def work():
        value = ray.put(array)
        assert all(each == len(array) for each in ray.get([total.remote(value) for _ in range(16)]))

    return {"values": protocol.repeated(work), "count": 1}


def ready():
    values = []
    for _ in range(protocol.REPEATS):
        start_time = time.perf_counter()
        start(READY_WORKERS)
        actors = [Counter.remote() for _ in range(READY_WORKERS)]
        ray.get([actor.add.remote(1) for actor in actors])
        values.append(time.perf_counter() - start_time)
        ray.shutdown()
    return {"values": values, "count": 1, "note": "ray.init and 4 actors that have answered"}


def manager(count="1000"):
    warm()
    counter = Counter.remote()
    return {
        "values": protocol.round_trips(lambda: ray.get(counter.add.remote(1)), int(count)),
        "count": 1,
        "note": "one call of an actor",
    }


@ray.remote
def add_one(x):
    return x + 1


@ray.remote
def add(*numbers):
    return sum(numbers)


def chain(count="2000"):
    count = int(count)

    def work():
        last = add_one.remote(0)
        for _ in range(1, count):
            last = add_one.remote(last)
        assert ray.get(last) == count

    warm()
    return {"values": [seconds / count for seconds in protocol.repeated(work)], "count": 1}


def fan(count="10000"):
    count = int(count)

    def work():
        refs = [add_one.remote(x) for x in range(count)]
        assert ray.get(add.remote(*refs)) == count * (count + 1) // 2

    warm()
    return {"values": protocol.repeated(work), "count": count}


def tree(count="5000"):
    count = int(count)

    def work():
        layer = [add_one.remote(x) for x in range(count)]
        while len(layer) > 1:
            layer = [add.remote(*layer[place : place + 2]) for place in range(0, len(layer), 2)]
        assert ray.get(layer[0]) == count * (count + 1) // 2

    warm()
    return {"values": protocol.repeated(work), "count": 2 * count}


def sort(mebibytes, memory):
    import numpy

    run_bytes = 64 * MIB
    runs = int(mebibytes) * MIB // run_bytes

    @ray.remote
    def run(seed):
        numbers = numpy.random.default_rng(seed).integers(0, 2**63, run_bytes // 8, dtype=numpy.uint64)
        numbers.sort()
        return numbers

    @ray.remote
    def part(numbers, number):
        bounds = numpy.array([2**63 * bound // runs for bound in (number, number + 1)], dtype=numpy.uint64)
        return numbers[slice(*numbers.searchsorted(bounds))].copy()

    @ray.remote
    def merge(*parts):
        merged = numpy.concatenate(parts)
        merged.sort()
        return merged

    @ray.remote
    def check(numbers):
        assert (numbers[:-1] <= numbers[1:]).all()
        return len(numbers)

    def work():
        sorted_runs = [run.remote(seed) for seed in range(runs)]
        merged = [merge.remote(*[part.remote(each, number) for each in sorted_runs]) for number in range(runs)]
        del sorted_runs
        counts = [check.remote(each) for each in merged]
        del merged
        assert sum(ray.get(counts)) == runs * run_bytes // 8

    start(2, object_store_memory=int(memory) * MIB)
    ray.get([nap.remote(0.5) for _ in range(2)])
    return {"values": [protocol.timed(work)], "count": 1}


def completed(count="10000"):
    count = int(count)

    def work():
        refs, total = [add_one.remote(x) for x in range(count)], 0
        while refs:
            (ref,), refs = ray.wait(refs)
            total += ray.get(ref)
        assert total == count * (count + 1) // 2

    warm()
    return {"values": protocol.repeated(work), "count": count, "note": "one `ray.wait` for each value"}


if __name__ == "__main__":
    protocol.main(
        "ray",
        ray.__version__,
        {
            "noop": noop,
            "map": map_,
            "sleep": sleep,
            "apply": apply,
            "bytes": bytes_,
            "arrays": arrays,
            "broadcast": broadcast,
            "ready": ready,
            "manager": manager,
            "chain": chain,
            "fan": fan,
            "tree": tree,
            "sort": sort,
            "completed": completed,
        },
    )
