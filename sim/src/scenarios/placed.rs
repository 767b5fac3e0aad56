//! Managed actors that choose their hosts.

use std::time::Duration;

use fiber::stats::JobPlace;
use fiber::supervisor::Backoff;
use fiber::{ActorPool, AsyncManager, Reply};
use fiber_core::Config;
use fiber_world::nap;

use super::Outcome;
use super::actors::{Echo, Say};
use crate::Ground;

/// Actors start beside another one and spread over hosts, while processes and hosts die. Each call
/// that is sent again is answered, as soon as there is a place, and an actor that starts afterwards
/// is where its rule says.
pub(super) fn placed(ground: &mut Ground) -> Outcome {
    let mut config = Config::default();
    config.processes_per_job = ground.rng.usize(2..=4);
    ground.configured(config, |ground| {
        let options = || {
            let builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
            builder.backoff(Backoff::none())
        };
        let first = options().name("first").start(|| Echo, ()).wait()?;
        let beside = options().name("beside").beside(&first).start(|| Echo, ()).wait()?;
        let builder = ActorPool::builder().manager(|_| options()).resend().spread();
        let pool = builder.start(|_: u64| Echo, 0..ground.processes() as u64).wait()?;
        let storm = ground.storm();
        let (addr, neighbor) = (first.addr().resend(), beside.addr().resend());
        let mut calls: Vec<(u64, Reply<u64>)> = Vec::new();
        for number in 0..ground.items(60) {
            nap(Duration::from_millis(ground.rng.u64(..100)));
            assert_eq!(addr.send(Say(number)).wait()?, number);
            assert_eq!(pool.send(Say(number)).wait()?, number);
            // Its host may be full for as long as the pool is there.
            calls.push((number, neighbor.send(Say(number))));
        }
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        for (number, call) in calls {
            assert_eq!(call.wait()?, number);
        }
        // Both have outlived the storm. The place of the one that starts again is that of the other.
        assert_eq!((addr.send(Say(0)).wait()?, neighbor.send(Say(0)).wait()?), (0, 0));
        let pid = beside.pid();
        beside.kill_process();
        while beside.pid().is_none_or(|current| Some(current) == pid) {
            nap(Duration::from_millis(10));
        }
        assert_eq!(host_of("beside"), host_of("first"));
        Ok(())
    })
}

/// Returns the host of the process of this name, which runs.
fn host_of(name: &str) -> String {
    let processes = fiber::stats().expect("there is a session").report.processes;
    let found = processes.into_iter().rfind(|process| process.name == name);
    match found.and_then(|process| process.job) {
        Some(JobPlace::Hosted { host, .. }) => host,
        place => panic!("`{name}` is in no host: {place:?}"),
    }
}
