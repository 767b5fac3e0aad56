use fiber::{Pool, Process, Ring, RingNode, process::ProcessHandle};

fn nested(_: Pool, _: u8) {}

fn started(_: u8) -> ProcessHandle {
    Process::spawn(|| (), ()).handle()
}

fn rank(_: RingNode, _: Pool) {}

fn main() {
    let pool = Pool::new(1).unwrap();
    let _ = pool.apply(nested, (pool.clone(), 1));
    let _ = pool.map(started, [1]);
    let _ = pool.map(|part: &[u64]| part.len(), [[1_u64, 2].as_slice()]);
    let _ = Ring::run(2, rank, pool);
}
