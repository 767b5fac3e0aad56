//! The statistics of actors.

use std::any::type_name;
use std::time::Duration;

use actix::prelude::*;
use fiber::{AsyncManager, RemoteAddr};

use super::wait_for;

struct Adder(u64);

#[fiber::message(u64)]
struct Add(u64);

impl Actor for Adder {
    type Context = Context<Adder>;
}

#[fiber::handlers]
impl Adder {
    fn add(&mut self, add: Add) -> u64 {
        assert!(add.0 < 1000, "too much");
        self.0 += add.0;
        self.0
    }
}

#[test]
fn a_managed_actor_shows_its_names_and_messages() {
    let adder = AsyncManager::builder().registered("sums").start(Adder, 1).wait().unwrap();
    for number in 0..10 {
        adder.send(Add(number)).wait().unwrap();
    }
    let actor = wait_for(|session| {
        let mut actors = session.report.actors.iter();
        actors.find(|actor| actor.name == adder.name() && actor.handled == 10).cloned()
    });
    assert!(actor.latency.max() > Duration::ZERO && actor.rate > 0.0, "{actor:?}");
    assert_eq!((actor.waiting, actor.failed, actor.restarts), (0, 0, 0));
    assert_eq!((&*actor.actor_type, &*actor.names), (type_name::<Adder>(), &["sums".into()][..]));
}

#[test]
fn actors_that_work_for_fiber_do_not_show() {
    let adder = AsyncManager::builder().group("sums").start(Adder, 1).wait().unwrap();
    adder.send(Add(1)).wait().unwrap();
    let sums = fiber::Entities::builder("sums").processes(1);
    let sums = sums.start(|_: String, ()| Adder(0), ()).wait().unwrap();
    sums.of("a").send(Add(1)).wait().unwrap();
    let types = wait_for(|session| {
        let actors = session.report.actors.iter();
        let types: Vec<_> = actors.map(|actor| actor.actor_type.clone()).collect();
        (types.len() >= 2).then_some(types)
    });
    // The one that keeps entities gets their messages.
    let works_for_user = |name: &String| name.contains(type_name::<Adder>());
    assert!(types.iter().all(works_for_user), "{types:?}");
}

#[test]
fn an_exported_actor_shows_its_type_and_its_names() {
    System::new().block_on(async {
        let addr = RemoteAddr::export(Adder(0).start()).unwrap();
        addr.register("here").await.unwrap();
        addr.send(Add(1)).await.unwrap();
        let actors = fiber::stats().unwrap().report.actors;
        let found = actors.iter().find(|actor| actor.names == ["here"]).unwrap();
        assert_eq!((&*found.name, &*found.actor_type), (type_name::<Adder>(), &*found.name));
        assert_eq!((found.handled, found.rate > 0.0, found.restarts), (1, true, 0));
    });
}
