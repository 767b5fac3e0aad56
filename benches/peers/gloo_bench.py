"""All-reduce of float32 with PyTorch's gloo: gloo_bench.py NODES BYTES EACH SAMPLES. Prints a line of JSON."""

import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, nodes, size, each, samples, port):
    # By default gloo asks the name service which address this host has, and may get one that is not there.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=nodes)
    data = torch.ones(size // 4)
    times = []
    for sample in range(samples + 1):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(each):
            dist.all_reduce(data, op=dist.ReduceOp.MAX)
        # The first one warms up.
        if sample > 0:
            times.append((time.perf_counter() - start) / each)
    if rank == 0:
        version = f"PyTorch {torch.__version__}"
        print(json.dumps({"seconds": statistics.median(times), "version": version}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    nodes, size, each, samples = map(int, sys.argv[1:])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(nodes, size, each, samples, port), nprocs=nodes)
