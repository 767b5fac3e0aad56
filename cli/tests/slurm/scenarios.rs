//! The programs for `fiber run`.

use std::process::ExitCode;
use std::time::Duration;

use fiber::Pool;

pub(crate) fn run(name: &str) -> ExitCode {
    fiber::init_with(|config| {
        config.heartbeat = Duration::from_millis(200);
        config.heartbeat_timeout = Duration::from_secs(5);
    });
    match name {
        "ready" => ready(),
        "cores" => {
            let pool = Pool::builder().build().unwrap();
            pool.wait_until_ready().wait().unwrap();
            println!("workers: {}", pool.ready());
            ExitCode::SUCCESS
        }
        "exit 3" => {
            println!("said in {}", std::env::current_dir().expect("there is one").display());
            println!("given: {:?}", std::env::var("GIVEN"));
            println!("arguments: {:?}", std::env::args().skip(1).collect::<Vec<_>>());
            eprintln!("complained");
            ExitCode::from(3)
        }
        "restarts" => {
            println!("start {}", std::env::var("SLURM_RESTART_COUNT").unwrap_or("0".into()));
            ExitCode::from(7)
        }
        "abort" => std::process::abort(),
        other => panic!("there is no scenario `{other}`"),
    }
}

/// Runs a pool of two workers forever.
fn ready() -> ! {
    let pool = Pool::builder().processes(2).build().unwrap();
    pool.wait_until_ready().wait().unwrap();
    let done = pool.map(|_: u32| println!("a worker speaks"), 0..2).wait().unwrap();
    println!("ready: {}", done.len());
    loop {
        std::thread::park();
    }
}
