//! Names of actors, and groups of them, while processes die and links break.

use std::time::Duration;

use fiber::supervisor::Backoff;
use fiber::{AsyncManager, Error, Group, Process, RemoteAddr, find, wait_for};
use fiber_world::{all_counted, count, counted, is_dead, nap};

use super::Outcome;
use super::actors::{Echo, Say};
use crate::Ground;

/// Longer than a link is made again.
const SETTLED: Duration = Duration::from_secs(60);
const GROUP: &str = "echoes";
/// The name that the head gives to an actor when the storm is over.
const OVER: &str = "over";

fn own_name(owner: u64) -> String {
    format!("owned-{owner:02}")
}

fn shared_name(name: u64) -> String {
    format!("shared-{name:02}")
}

/// Owns an actor with a name of its own, which is in the group, and takes names from each other.
fn own(owner: u64, names: u64, is_calm: bool) -> Result<(), Error> {
    let builder = AsyncManager::builder().name(own_name(owner)).registered(own_name(owner));
    let builder = builder.intensity(u32::MAX, Duration::from_secs(1)).backoff(Backoff::none());
    let echo = builder.start(|| Echo, ()).wait()?;
    Group::<Say>::named(GROUP)?.join(&echo.recipient()).wait()?;
    count("ready", owner);
    let mut name = owner;
    while counted("calm", 0) == 0 && !is_dead() {
        name = (name + 1) % names;
        match echo.register(&shared_name(name)).wait() {
            Ok(()) => {
                let held = count("taken", name) - counted("given", name);
                if is_calm && held != 1 {
                    count("held twice", name);
                }
                nap(Duration::from_millis(50));
                count("given", name);
                // A link that breaks takes the name from the actor, too.
                let _ = echo.unregister(&shared_name(name)).wait();
            }
            Err(Error::NameTaken { .. }) => nap(Duration::from_millis(20)),
            Err(error) => assert!(!is_calm, "{error}"),
        }
    }
    while counted("over", 0) == 0 && !is_dead() {
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// Asks actors that it finds by their names, and all of the group.
fn use_all(user: u64, owners: u64, is_calm: bool) -> Result<usize, Error> {
    let limit = Duration::from_secs(300);
    let over = wait_for::<Echo>(OVER);
    let group = Group::<Say>::named(GROUP)?;
    let ask = |addr: RemoteAddr<Echo>, number| match addr.timeout(limit).send(Say(number)).wait() {
        Ok(answer) => assert_eq!(answer, number),
        Err(error) => {
            fiber_world::note(format_args!("user {user}: {error}"));
            assert!(!is_calm, "{error}");
        }
    };
    let mut number = user;
    while counted("calm", 0) == 0 && !is_dead() {
        number += 1;
        match find::<Echo>(&own_name(number % owners)).wait() {
            Ok(addr) => ask(addr, number),
            Err(error) => assert!(!is_calm, "{error}"),
        }
        if let Ok(addr) = find::<Echo>(&shared_name(number % owners)).wait() {
            ask(addr, number);
        }
        let answers = group.send_all(Say(number)).try_all().timeout(limit).wait();
        if let Err(error) = &answers {
            fiber_world::note(format_args!("user {user}: {error}"));
        }
        for answer in answers.into_iter().flatten() {
            match answer {
                Ok(answer) => assert_eq!(answer, number),
                Err(error) => {
                    fiber_world::note(format_args!("user {user}: {error}"));
                    assert!(!is_calm, "{error}");
                }
            }
        }
        nap(Duration::from_millis(100));
    }
    // It waits from now on, so that somebody has to wake it.
    let over = match over.wait() {
        Ok(over) => over,
        // The link to the head was lost meanwhile.
        Err(_) => wait_for::<Echo>(OVER).wait()?,
    };
    assert_eq!(over.send(Say(7)).wait()?, 7);
    let answers = group.send_all(Say(1)).try_all().wait()?;
    Ok(answers.into_iter().filter(|answer| matches!(answer, Ok(1))).count())
}

/// A name has one holder, and the names and memberships that are left after the storm are those of
/// the processes that are: for the head, and for those that have asked before.
pub(super) fn names(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let (owners, users) = (ground.processes() as u64, ground.processes() as u64);
        let names = ground.items(owners);
        // Whether a storm is calm is drawn when it begins, which processes have to know before.
        let is_calm = ground.happens(64);
        let owners: Vec<_> = (0..owners)
            .map(|owner| Process::builder().try_spawn(own, (owner, names, is_calm)))
            .collect();
        for owner in 0..owners.len() as u64 {
            while counted("ready", owner) == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let count_of_owners = owners.len() as u64;
        let users: Vec<_> = (0..users)
            .map(|user| Process::builder().try_spawn(use_all, (user, count_of_owners, is_calm)))
            .collect();
        if is_calm {
            nap(Duration::from_secs(2));
        } else {
            let storm = ground.storm();
            ground.wait_for_calm(storm);
        }
        count("calm", 0);
        std::thread::sleep(SETTLED);
        let living: Vec<u64> =
            (0..).zip(&owners).filter(|(_, owner)| owner.is_alive()).map(|(at, _)| at).collect();
        let names = fiber::names().wait()?.into_iter().map(|named| named.name);
        let names: Vec<_> = names.collect();
        let expected: Vec<_> = living.iter().map(|owner| own_name(*owner)).collect();
        assert_eq!(names, expected);
        let group = Group::<Say>::named(GROUP)?;
        assert_eq!(group.members().wait()?.len(), living.len());
        let over = AsyncManager::builder().registered(OVER).start(|| Echo, ()).wait()?;
        for user in users {
            match user.wait() {
                Ok(answers) => assert_eq!(answers, living.len()),
                Err(error) if is_calm => return Err(error.into()),
                // It may have died.
                Err(_) => {}
            }
        }
        count("over", 0);
        for owner in owners {
            let ended = owner.wait();
            if is_calm {
                ended?;
            }
        }
        let twice = all_counted("held twice");
        assert!(twice.is_empty(), "names had two holders: {twice:?}");
        over.stop().wait()?;
        while !fiber::names().wait()?.is_empty() || !group.members().wait()?.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })
}
