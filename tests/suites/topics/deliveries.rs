//! Deliveries of topics to actors.

use actix::prelude::*;
use fiber::error::ExitReason;
use fiber::manager::AsyncManager;
use fiber::remote::RemoteAddr;
use fiber::sync::Event;
use fiber::topic::{Slow, Topic};
use fiber::{Error, Process, Queue};
use fiber_test_support::signals::kill;
use fiber_test_support::wait::{self, wait_until};

use super::{hang, take};

/// Collects numbers, and fails or dies on request.
struct Collector(Vec<u32>);

impl Actor for Collector {
    type Context = Context<Self>;
}

#[fiber::message]
#[derive(Clone)]
enum Collect {
    Number(u32),
    Panic,
}

#[fiber::message(Vec<u32>)]
struct Collected;

#[fiber::handlers]
impl Collector {
    fn collect(&mut self, collect: Collect) {
        match collect {
            Collect::Number(number) => self.0.push(number),
            Collect::Panic => panic!("that is too much"),
        }
    }

    fn collected(&mut self, _: Collected) -> Vec<u32> {
        self.0.clone()
    }
}

fn collector() -> AsyncManager<Collector> {
    AsyncManager::start(|| Collector(Vec::new()), ()).wait().unwrap()
}

fn wait_for(collector: &AsyncManager<Collector>, expected: &[u32]) {
    wait::wait_for("the messages", || match collector.send(Collected).wait().unwrap() {
        collected if collected == expected => Ok(()),
        collected => Err(collected),
    });
}

#[test]
fn an_actor_gets_all_messages_in_order_until_it_ends() {
    let (topic, collector) = (Topic::named("collect").unwrap(), collector());
    let recipient = collector.recipient();
    let delivery = topic.buffer(3).deliver_to(&recipient, Slow::Wait).wait().unwrap();
    (0..50).for_each(|number| topic.publish(Collect::Number(number)).wait().unwrap());
    wait_for(&collector, &(0..50).collect::<Vec<_>>());
    assert_eq!(delivery.failed(), 0);
    collector.stop().wait().unwrap();
    topic.publish(Collect::Number(50)).wait().unwrap();
    let error = delivery.join().wait().unwrap_err();
    assert!(matches!(error, Error::ActorStopped { .. }), "{error}");
    // The subscription has ended with the delivery.
    (0..20).for_each(|number| topic.publish(Collect::Number(number)).wait().unwrap());
}

#[test]
fn an_actor_that_restarts_gets_the_next_messages() {
    let (topic, collector) = (Topic::new().unwrap(), collector());
    let delivery = topic.deliver_to(&collector.recipient(), Slow::Wait).wait().unwrap();
    topic.publish(Collect::Number(1)).wait().unwrap();
    wait_for(&collector, &[1]);
    topic.publish(Collect::Panic).wait().unwrap();
    topic.publish(Collect::Number(2)).wait().unwrap();
    wait_for(&collector, &[2]);
    assert_eq!(delivery.failed(), 1);
    let pid = collector.pid().unwrap();
    kill(pid);
    wait_until("the restart", || collector.pid().is_some_and(|now| now != pid));
    // The link to the dead process may not have closed yet: what is sent over it counts as failed.
    let mut published = 0;
    while collector.send(Collected).wait().unwrap().is_empty() {
        published += 1;
        topic.publish(Collect::Number(3)).wait().unwrap();
    }
    topic.publish(Collect::Number(4)).wait().unwrap();
    let last = || collector.send(Collected).wait().unwrap().last().copied();
    wait_until("the last message", || last() == Some(4));
    let arrived = collector.send(Collected).wait().unwrap().len() as u64 - 1;
    assert_eq!(arrived + delivery.failed() - 1, published);
}

#[test]
fn a_delivery_lasts_as_long_as_its_handle_or_its_process() {
    let (topic, collector, started) = (Topic::new().unwrap(), collector(), Event::new().unwrap());
    let recipient = collector.recipient();
    drop(topic.deliver_to(&recipient, Slow::Wait).wait().unwrap());
    let deliver = |topic: Topic<Collect>, addr: RemoteAddr<Collector>, started: Event| {
        topic.deliver_to(&addr.recipient(), Slow::Wait).wait().unwrap().detach();
        started.set().wait().unwrap();
        hang();
    };
    let child = Process::spawn(deliver, (topic.clone(), collector.addr(), started.clone()));
    started.wait_set().wait().unwrap();
    topic.publish(Collect::Number(2)).wait().unwrap();
    wait_for(&collector, &[2]);
    child.kill();
    let _ = child.join().wait();
    let mut last = topic.subscribe(Slow::Wait).wait().unwrap();
    topic.publish(Collect::Number(3)).wait().unwrap();
    take(&mut last, 1);
    assert_eq!(collector.send(Collected).wait().unwrap(), [2]);
}

#[test]
fn an_actor_that_its_process_exports_ends_with_it() {
    let (topic, addrs) = (Topic::new().unwrap(), Queue::new().unwrap());
    let export = |addrs: Queue<RemoteAddr<Collector>>| {
        System::new().block_on(async {
            addrs.put(RemoteAddr::export(Collector(Vec::new()).start())?).await?;
            std::future::pending::<fiber::Result<()>>().await
        })
    };
    let child = Process::builder().try_spawn(export, addrs.clone());
    let addr = addrs.get().wait().unwrap();
    let delivery = topic.deliver_to(&addr.recipient(), Slow::Wait).wait().unwrap();
    topic.publish(Collect::Number(1)).wait().unwrap();
    wait_until("the message", || addr.send(Collected).wait().unwrap() == [1]);
    child.kill();
    // Until then, the actor may answer.
    let _ = child.join().wait();
    topic.publish(Collect::Number(2)).wait().unwrap();
    let error = delivery.join().wait().unwrap_err();
    let Error::ActorStopped { reason, .. } = &error else { panic!("{error}") };
    assert!(!matches!(reason, ExitReason::Normal), "{error}");
}
