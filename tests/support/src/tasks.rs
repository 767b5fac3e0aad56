//! Tasks of programs in containers and pods.

use fiber::sync::Barrier;
use fiber::{Meta, Pool};

/// Returns arguments for so many tasks, which run at the same time if each waits for its own:
/// `chunk(1)` then gives one to each worker.
pub fn all_at_once(count: usize) -> Vec<Barrier> {
    vec![Barrier::new(count).unwrap(); count]
}

/// Estimates pi with this number of workers.
pub fn pi(processes: usize) {
    let inside = |n: u64| {
        let (x, y) = (((n % 1000) as f64 + 0.5) / 1000.0, ((n / 1000) as f64 + 0.5) / 1000.0);
        x * x + y * y < 1.0
    };
    let pool = Pool::builder().processes(processes).start().wait().unwrap();
    let hits = pool.map(inside, 0..1_000_000).wait().unwrap();
    println!("pi: {:.2}", 4.0 * hits.iter().filter(|hit| **hit).count() as f64 / 1e6);
}

/// Prints why a pool fails whose workers are larger than any machine.
pub fn too_large(meta: Meta) {
    let pool = Pool::builder().processes(1).meta(meta).start().wait();
    let done = pool.and_then(|pool| pool.apply(|()| (), ()).wait());
    println!("{}", done.expect_err("no machine has so much"));
}

/// Returns the kernel's limits of memory and CPU time for this process's control group.
pub fn limits() -> String {
    let read = |paths: &[&str]| {
        let text = paths.iter().find_map(|path| std::fs::read_to_string(path).ok());
        text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join("/")
    };
    let memory =
        read(&["/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"]);
    let quota = read(&["/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max"]);
    format!("{memory} {quota}")
}

/// Allocates memory without end.
pub fn eat() -> ! {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(vec![1; 1 << 20]);
    }
}
