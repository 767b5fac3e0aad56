//! Faults that a test chooses.

use std::sync::Mutex;
use std::time::Duration;

use actix::clock::sleep;
use fiber::sim::{self, World};
use fiber::{Pool, Process};

fn work(x: u64) -> u64 {
    sim::world().count(format!("begins {x}"));
    std::thread::sleep(Duration::from_secs(1));
    sim::world().count(format!("ends {x}"));
    x
}

/// Lets a pool of two work, and one of its workers suffer meanwhile.
async fn suffer(world: World, fault: impl FnOnce() -> fiber::Result<()>) -> sim::Result {
    let pool = Pool::builder().name("p").processes(2).build()?;
    pool.wait_until_ready().await?;
    assert_eq!(world.processes(), ["p/worker-1", "p/worker-2"]);
    let call = pool.map(work, 0..2);
    sleep(Duration::from_millis(500)).await;
    fault()?;
    assert_eq!(call.await?, [0, 1]);
    pool.stop().await?;
    Ok(())
}

fn begins(world: World) -> u64 {
    (0..2).map(|x| world.counted(&format!("begins {x}"))).sum()
}

fn ends(world: World) -> u64 {
    (0..2).map(|x| world.counted(&format!("ends {x}"))).sum()
}

#[test]
fn a_killed_worker_counts_nothing_more() {
    sim::check(10, async |world| {
        suffer(world, || world.kill("p/worker-2")).await?;
        assert_eq!((begins(world), ends(world)), (3, 2));
        suffer(world, || {
            assert!(world.kill_any().is_some_and(|name| name.starts_with("p/worker-")));
            Ok(())
        })
        .await?;
        assert_eq!((begins(world), ends(world)), (6, 4));
        Ok(())
    });
}

#[test]
fn a_worker_without_its_link_is_replaced() {
    sim::check(10, async |world| {
        suffer(world, || world.cut("p/worker-1")).await?;
        assert_eq!(begins(world), 3);
        let before = world.now();
        suffer(world, || world.lose("p/worker-1")).await?;
        assert_eq!(begins(world), 6);
        // Heartbeats were missing until the timeout.
        assert!(world.now() - before > Duration::from_secs(10), "{:?}", world.now());
        Ok(())
    });
}

#[test]
fn a_stopped_worker_goes_on() {
    sim::check(10, async |world| {
        let before = world.now();
        suffer(world, || world.stop("p/worker-1", Duration::from_secs(4))).await?;
        assert_eq!((begins(world), ends(world)), (2, 2));
        assert!(world.now() - before > Duration::from_secs(4), "{:?}", world.now());
        assert!(world.stop_any(Duration::from_secs(1)).is_none(), "the pool is gone");
        Ok(())
    });
}

#[test]
fn an_unknown_process_is_an_error() {
    sim::run(1, async |world| {
        let unknown = world.kill("worker-2").unwrap_err().to_string();
        assert!(unknown.contains("`worker-2`: there is none"), "{unknown}");
        let child = Process::builder().name("child").spawn(work, 1);
        child.started().await?;
        let unknown = world.stop("chidl", Duration::MAX).unwrap_err().to_string();
        assert!(unknown.contains("`chidl`: there are child"), "{unknown}");
        assert!(world.cut("x").is_err() && world.lose("x").is_err());
        assert_eq!(child.await?, 1);
        Ok(())
    });
}

static LOCK: Mutex<()> = Mutex::new(());

fn hold() {
    let held = LOCK.lock().unwrap();
    sim::world().count("holds");
    for _ in 0..1000 {
        std::thread::yield_now();
    }
    sim::world().count("has held");
    drop(held);
    std::thread::sleep(Duration::from_secs(1));
    sim::world().count("ends");
}

/// The processes of a world share its memory, so one that stands still must not hold a lock of it.
#[test]
fn a_stopped_process_holds_no_lock_of_others() {
    sim::check(10, async |world| {
        let child = Process::builder().name("holder").spawn(hold, ());
        while world.counted("holds") == 0 {
            std::thread::yield_now();
        }
        world.stop("holder", Duration::from_secs(4))?;
        let before = world.now();
        drop(LOCK.lock().unwrap());
        assert!(
            world.now() - before < Duration::from_secs(1),
            "it waits until the process goes on"
        );
        assert_eq!((world.counted("has held"), world.counted("ends")), (1, 0));
        child.await?;
        assert!(world.now() - before > Duration::from_secs(4), "{:?}", world.now());
        Ok(())
    });
}
