//! Messages to all actors of a pool or a group, and what they answer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::prelude::*;
use fiber::actor_pool::ActorPoolAddr;
use fiber::pipe::PipeSender;
use fiber::{
    ActorPool, AsyncManager, Error, Group, Pipe, Process, Queue, RemoteAddr, Reply,
    error::ExitReason, reply::Replies, supervisor::Down,
};
use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::mpsc;

use super::counter::{Add, Counter};

/// Knows its number.
struct Numbered(u64);

impl Actor for Numbered {
    type Context = Context<Self>;
}

/// Asks for the number. One of the actors may panic, and some never answer.
#[fiber::message(u64)]
#[derive(Clone, Default)]
struct Number {
    panics: Option<u64>,
    never: Vec<u64>,
}

impl Handler<Number> for Numbered {
    type Result = ResponseFuture<u64>;

    fn handle(&mut self, ask: Number, _: &mut Context<Self>) -> Self::Result {
        let number = self.0;
        assert!(ask.panics != Some(number), "it is {number}");
        let never = ask.never.contains(&number);
        Box::pin(async move {
            if never {
                std::future::pending::<()>().await;
            }
            number
        })
    }
}

fn numbered(count: u64) -> ActorPool<Numbered> {
    ActorPool::builder().name("numbered").start(Numbered, 0..count).wait().unwrap()
}

/// A group of actors with these numbers.
fn group_of(
    name: &str,
    numbers: impl IntoIterator<Item = u64>,
) -> (Group<Number>, Vec<AsyncManager<Numbered>>) {
    let group = Group::named(name).unwrap();
    let start = |number| AsyncManager::start(Numbered, number).wait().unwrap();
    let managers: Vec<_> = numbers.into_iter().map(start).collect();
    for manager in &managers {
        group.join(&manager.recipient()).wait().unwrap();
    }
    (group, managers)
}

fn panic_of(number: u64) -> Number {
    Number { panics: Some(number), ..Number::default() }
}

#[test]
fn all_values_come_in_the_order_of_the_actors() {
    let pool = numbered(40);
    let replies = pool.broadcast(Number::default());
    assert_eq!((replies.len(), replies.is_empty()), (40, false));
    assert_eq!(replies.all().wait().unwrap(), Vec::from_iter(0..40));
    let outcomes = pool.broadcast(Number::default()).try_all().wait().unwrap();
    assert!(outcomes.into_iter().map(Result::unwrap).eq(0..40));
    let places = pool.broadcast(Number::default()).as_completed().wait();
    let places: HashSet<_> =
        places.map(|(place, number)| (place as u64, number.unwrap())).collect();
    assert_eq!(places, (0..40).map(|number| (number, number)).collect());
    let each = pool.broadcast(Number::default()).into_iter().map(Reply::wait);
    assert!(each.map(Result::unwrap).eq(0..40));
    // It goes to another thread, and has a limit as any reply.
    let all = pool.broadcast(Number::default()).all().timeout(Duration::from_secs(60));
    let elsewhere = std::thread::spawn(move || all.wait().unwrap().len());
    assert_eq!(elsewhere.join().unwrap(), 40);
}

#[test]
fn the_first_failure_fails_all_at_once_and_names_the_member() {
    let pool = numbered(3);
    // The others never answer.
    let ask = Number { panics: Some(1), never: vec![0, 2] };
    let error = pool.broadcast(ask).all().wait().unwrap_err();
    let Error::Member { index: 1, name, cause } = &error else { panic!("{error:?}") };
    assert_eq!(name, "numbered-1");
    assert!(matches!(**cause, Error::Call { .. }), "{cause:?}");
    let words = "member 1: actor `numbered-1` panicked: it is 1";
    assert!(error.to_string().starts_with(words), "{error}");
    let ask = Number { panics: Some(2), never: vec![0, 1] };
    let error = pool.broadcast(ask).reduce(u64::max).wait().unwrap_err();
    assert!(matches!(error, Error::Member { index: 2, .. }), "{error:?}");
}

#[test]
fn an_error_that_has_no_name_gets_the_members() {
    let pool = numbered(2);
    let limit = Duration::from_millis(1);
    let impatient: ActorPoolAddr<_> = pool.addrs().map(|addr| addr.timeout(limit)).collect();
    let ask = Number { never: vec![0, 1], ..Number::default() };
    let error = impatient.broadcast(ask).all().wait().unwrap_err();
    let Error::Member { index, .. } = error else { panic!("{error:?}") };
    let words = format!("member {index} (`numbered-{index}`): the answer of actor");
    assert!(error.to_string().starts_with(&words), "{error}");
}

#[test]
fn a_member_that_fails_keeps_no_other_from_answering() {
    let pool = numbered(3);
    let outcomes = pool.broadcast(panic_of(1)).try_all().wait().unwrap();
    assert!(matches!(outcomes[..], [Ok(0), Err(Error::Call { .. }), Ok(2)]), "{outcomes:?}");
    let outcomes = pool.broadcast(panic_of(2)).as_completed().wait();
    let failed = |(place, outcome): (usize, fiber::Result<u64>)| outcome.is_err().then_some(place);
    assert_eq!(outcomes.filter_map(failed).collect::<Vec<_>>(), [2]);
    // A dropped message to all is handled all the same.
    let counters = ActorPool::builder().start(Counter::new, [0, 10]).wait().unwrap();
    drop(counters.broadcast(Add(1)));
    assert_eq!(counters.broadcast(Add(0)).all().wait().unwrap(), [1, 11]);
}

#[test]
fn outcomes_come_as_they_are_there() {
    let pool = numbered(3);
    let outcomes = pool.broadcast(Number { never: vec![0], ..Number::default() }).as_completed();
    let first = outcomes.wait().take(2).map(|(place, number)| (place, number.unwrap()));
    assert_eq!(first.collect::<HashSet<_>>(), [(1, 1), (2, 2)].into());
    let nothing = pool.slice(..0).unwrap().broadcast(Number::default());
    assert_eq!(nothing.as_completed().wait().count(), 0);
}

#[test]
fn values_are_merged_in_the_order_of_the_actors() {
    let pool = numbered(5);
    let digits = |ask| pool.broadcast(ask).reduce(|number, digit| 10 * number + digit);
    assert_eq!(digits(Number::default()).wait().unwrap(), Some(1234));
    let none = pool.slice(2..2).unwrap().broadcast(Number::default()).reduce(u64::max);
    assert_eq!(none.wait().unwrap(), None);
    let one = pool.slice(4..).unwrap().broadcast(Number::default()).reduce(u64::max);
    assert_eq!(one.wait().unwrap(), Some(4));
}

#[test]
fn a_pool_merges_answers_of_any_length_to_one() {
    let pool = numbered(5);
    assert_eq!(pool.reduce(Number::default(), |a, b| a + b).wait().unwrap(), Some(10));
    assert_eq!(pool.reduce(Number::default(), u64::max).wait().unwrap(), Some(4));
    let none = pool.slice(2..2).unwrap().reduce(Number::default(), u64::max);
    assert_eq!(none.wait().unwrap(), None);
    let error = pool.reduce(panic_of(2), u64::max).wait().unwrap_err();
    let words = "member 2: actor `numbered-2` panicked: it is 2";
    assert!(error.to_string().starts_with(words), "{error}");
    // An answer with handles goes to the caller at once.
    let queue = pool.reduce(Fresh, |queue, _| queue).wait().unwrap().unwrap();
    queue.put(7).wait().unwrap();
    assert_eq!(queue.get().wait().unwrap(), 7);
}

/// Asks for a queue that the actor makes.
#[fiber::message(Queue<u64>)]
struct Fresh;

#[fiber::handlers]
impl Numbered {
    fn fresh(&mut self, _: Fresh) -> Queue<u64> {
        Queue::new().unwrap()
    }
}

#[test]
fn replies_of_a_group_are_the_same_before_its_members_are_known() {
    let (group, _managers) = group_of("replies", [3, 1, 2]);
    // Each process sends its first message to the group, and takes the answers in another way.
    let all = |group: Group<Number>| group.send_all(Number::default()).all().wait();
    let counted = |group: Group<Number>| -> fiber::Result<Vec<u64>> {
        let replies = group.send_all(Number::default());
        assert_eq!(replies.len(), 3);
        replies.into_iter().map(Reply::wait).collect()
    };
    let each = |group: Group<Number>| -> fiber::Result<Vec<u64>> {
        group.send_all(Number::default()).into_iter().map(Reply::wait).collect()
    };
    let as_completed = |group: Group<Number>| -> fiber::Result<Vec<u64>> {
        let outcomes = group.send_all(Number::default()).as_completed().wait();
        let mut outcomes: Vec<_> = outcomes.collect();
        outcomes.sort_by_key(|(place, _)| *place);
        outcomes.into_iter().map(|(_, number)| number).collect()
    };
    let reduced = |group: Group<Number>| -> fiber::Result<Vec<u64>> {
        let digits = group.send_all(Number::default()).reduce(|a, b| 10 * a + b).wait()?;
        Ok(digits.map(|digits| vec![digits / 100, digits / 10 % 10, digits % 10]).unwrap())
    };
    let process = || Process::builder();
    for numbers in [
        process().try_spawn(all, group.clone()),
        process().try_spawn(counted, group.clone()),
        process().try_spawn(each, group.clone()),
        process().try_spawn(as_completed, group.clone()),
        process().try_spawn(reduced, group.clone()),
    ] {
        assert_eq!(numbers.wait().unwrap(), [3, 1, 2]);
    }
    let error = group.send_all(panic_of(2)).all().wait().unwrap_err();
    assert!(matches!(error, Error::Member { index: 2, .. }), "{error:?}");
}

#[test]
fn a_group_whose_members_can_not_be_known_has_one_reply_with_the_reason() {
    let (_group, _managers) = group_of("other type", [1]);
    let adds = Group::<Add>::named("other type").unwrap();
    let is_other = |error: &Error| matches!(error, Error::OtherType { .. });
    for _ in 0..2 {
        assert!(is_other(&adds.send_all(Add(1)).all().wait().unwrap_err()));
        assert!(is_other(&adds.send_all(Add(1)).try_all().wait().unwrap_err()));
        let replies = adds.send_all(Add(1));
        assert_eq!(replies.len(), 1);
        let replies: Vec<_> = replies.into_iter().map(Reply::wait).collect();
        assert!(matches!(&replies[..], [Err(error)] if is_other(error)), "{replies:?}");
        let outcomes: Vec<_> = adds.send_all(Add(1)).as_completed().wait().collect();
        assert!(matches!(&outcomes[..], [(0, Err(error))] if is_other(error)), "{outcomes:?}");
    }
}

/// Counts how often it is encoded.
#[derive(Message, Deserialize)]
#[rtype(result = "u64")]
struct Counted;

static ENCODED: AtomicUsize = AtomicUsize::new(0);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        serializer.serialize_unit_struct("Counted")
    }
}

#[fiber::handlers]
impl Numbered {
    fn counted(&mut self, _: Counted) -> u64 {
        self.0
    }
}

#[test]
fn a_message_to_all_is_encoded_once() {
    let pool = numbered(3);
    let group = Group::<Counted>::named("encoded once").unwrap();
    for addr in pool.addrs() {
        group.join(&addr.recipient()).wait().unwrap();
    }
    let encodings = |send: &dyn Fn()| {
        let before = ENCODED.load(Ordering::Relaxed);
        send();
        ENCODED.load(Ordering::Relaxed) - before
    };
    let values = |replies: Replies<u64>| assert_eq!(replies.all().wait().unwrap(), [0, 1, 2]);
    assert_eq!(encodings(&|| values(pool.broadcast(Counted))), 1);
    assert_eq!(encodings(&|| pool.do_broadcast(Counted)), 1);
    assert_eq!(encodings(&|| values(group.send_all(Counted))), 1);
    assert_eq!(encodings(&|| group.do_send_all(Counted)), 1);
}

/// The answer is its length and sum.
#[fiber::message((usize, u64))]
struct Bytes(#[serde(with = "serde_bytes")] Vec<u8>, Vec<u64>);

#[fiber::handlers]
impl Numbered {
    fn bytes(&mut self, Bytes(bytes, numbers): Bytes) -> (usize, u64) {
        let sum = bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        (bytes.len(), sum + numbers.iter().sum::<u64>())
    }
}

#[test]
fn short_and_long_messages_arrive_whole_also_at_an_actor_of_this_process() {
    System::new().block_on(async {
        let pool = ActorPool::builder().start(Numbered, 0..2).await.unwrap();
        let here = RemoteAddr::export(Numbered(2).start()).unwrap();
        let all: ActorPoolAddr<_> = pool.addrs().chain([here]).collect();
        // Some have time limits, which travel beside the message.
        let limited: ActorPoolAddr<_> =
            all.addrs().map(|addr| addr.timeout(Duration::from_secs(60))).collect();
        let group = Group::<Bytes>::named("bytes").unwrap();
        for addr in all.addrs() {
            group.join(&addr.recipient()).await.unwrap();
        }
        // Short ones are copied, longer ones are shared, and those above are in shared memory.
        for len in [0, 10, 16 << 10, 20 << 10, 31 << 10, 33 << 10, 1 << 20] {
            let bytes: Vec<u8> = (0..len).map(|place| place as u8).collect();
            let sum = bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>() + 12;
            let message = || Bytes(bytes.clone(), vec![3, 4, 5]);
            for replies in
                [all.broadcast(message()), limited.broadcast(message()), group.send_all(message())]
            {
                assert_eq!(replies.all().await.unwrap(), [(len, sum); 3]);
            }
        }
    });
}

/// Puts its number into a queue, and sends it over a pipe.
#[fiber::message]
struct Say(Queue<u64>, PipeSender<u64>);

impl Handler<Say> for Numbered {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Say(queue, pipe): Say, _: &mut Context<Self>) -> Self::Result {
        let number = self.0;
        Box::pin(async move {
            queue.put(number).await.unwrap();
            pipe.send(number).await.unwrap();
        })
    }
}

/// Keeps the actor's thread busy until the queue has an element.
#[fiber::message]
struct Busy(Queue<()>);

#[fiber::handlers]
impl Numbered {
    fn busy(&mut self, Busy(until): Busy) {
        until.get().wait().unwrap();
    }
}

/// A pipe stays open while an actor has not read the message with its end, although another one has
/// read its own and is done with it.
#[test]
fn handles_in_a_message_to_all_count_for_each_actor() {
    let pool = numbered(3);
    let (first, rest) = (pool.slice(..1).unwrap(), pool.slice(1..).unwrap());
    for answers in [true, false] {
        let free = Queue::new().unwrap();
        let busy = rest.broadcast(Busy(free.clone()));
        let queue = Queue::new().unwrap();
        let (sender, receiver) = Pipe::<u64>::one_way().unwrap();
        let says = if answers {
            Some(pool.broadcast(Say(queue.clone(), sender)))
        } else {
            pool.do_broadcast(Say(queue.clone(), sender));
            None
        };
        // The first actor is done with its end. It answers after it.
        assert_eq!((queue.get().wait().unwrap(), receiver.recv().wait().unwrap()), (0, 0));
        first.broadcast(Number::default()).all().wait().unwrap();
        for _ in 1..3 {
            free.put(()).wait().unwrap();
        }
        busy.all().wait().unwrap();
        let mut others = [(); 2].map(|()| receiver.recv().wait().unwrap());
        others.sort_unstable();
        assert_eq!(others, [1, 2]);
        if let Some(says) = says {
            says.all().wait().unwrap();
        }
        let end = receiver.recv().wait().unwrap_err();
        assert!(matches!(end, Error::Closed { .. }), "{end:?}");
    }
}

#[test]
fn a_slice_has_the_actors_of_its_range() {
    let mut pool = numbered(4);
    let numbers = |addr: &ActorPoolAddr<Numbered>| -> Vec<u64> {
        addr.broadcast(Number::default()).all().wait().unwrap()
    };
    for (slice, expected) in [
        (pool.slice(0..4), &[0, 1, 2, 3][..]),
        (pool.slice(..), &[0, 1, 2, 3]),
        (pool.slice(1..=2), &[1, 2]),
        (pool.slice(3..), &[3]),
        (pool.slice(4..), &[]),
    ] {
        let slice = slice.unwrap();
        assert_eq!((numbers(&slice), slice.size()), (expected.to_vec(), expected.len()));
    }
    for (error, range) in [
        (pool.slice(2..9), "2..9 of 4 actors"),
        (pool.slice(5..), "5..5 of 4 actors"),
        (pool.slice(..=usize::MAX), "of 4 actors"),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(range), "{error}");
    }
    // It keeps its actors, and these their numbers, also elsewhere.
    let slice = pool.slice(2..).unwrap();
    let first = pool.addrs().next().unwrap();
    pool.remove(&first).unwrap().wait().unwrap();
    pool.add(AsyncManager::start(Numbered, 9).wait().unwrap());
    assert_eq!(numbers(&slice), [2, 3]);
    assert_eq!(numbers(&pool), [1, 2, 3, 9]);
    let indices = |addr: ActorPoolAddr<Numbered>| -> Vec<Option<usize>> {
        addr.addrs().map(|addr| addr.index()).collect()
    };
    assert_eq!(indices(slice.clone()), [Some(2), Some(3)]);
    assert_eq!(indices(pool.addr()), [1, 2, 3, 4].map(Some));
    assert_eq!(Process::spawn(indices, slice).wait().unwrap(), [Some(2), Some(3)]);
    assert_eq!(pool.managers().next().unwrap().addr().index(), None);
    // Keys belong to the same actors of a slice everywhere.
    let owners = |addr: ActorPoolAddr<Numbered>| -> Vec<u64> {
        let owner = |key: u64| addr.send_to(&key, Number::default()).wait().unwrap();
        (0..20).map(owner).collect()
    };
    assert_eq!(Process::spawn(owners, pool.addr()).wait().unwrap(), owners(pool.addr()));
}

#[test]
fn addresses_become_a_pool() {
    let managers = [5, 7].map(|number| AsyncManager::start(Numbered, number).wait().unwrap());
    let pool: ActorPoolAddr<_> = managers.iter().map(|manager| manager.addr()).collect();
    assert_eq!(pool.broadcast(Number::default()).all().wait().unwrap(), [5, 7]);
    let indices: Vec<_> = pool.addrs().map(|addr| addr.index()).collect();
    assert_eq!(indices, [Some(0), Some(1)]);
    let turns: HashSet<_> = (0..2).map(|_| pool.send(Number::default()).wait().unwrap()).collect();
    assert_eq!(turns, [5, 7].into());
    let owner = pool.send_to("key", Number::default()).wait().unwrap();
    pool.do_send_to("key", Number::default());
    let there = |pool: ActorPoolAddr<Numbered>| pool.send_to("key", Number::default()).wait();
    assert_eq!(Process::builder().try_spawn(there, pool).wait().unwrap(), owner);
}

#[test]
fn a_pool_of_no_addresses_has_no_member_for_a_message() {
    let none: ActorPoolAddr<Numbered> = [].into_iter().collect();
    let is_refused = |none: &ActorPoolAddr<Numbered>| {
        let refused = |error: Error| matches!(error, Error::NoMembers { .. });
        none.do_send(Number::default());
        none.do_send_to("key", Number::default());
        none.do_broadcast(Number::default());
        refused(none.send(Number::default()).wait().unwrap_err())
            && refused(none.send_to("key", Number::default()).wait().unwrap_err())
            && refused(none.try_send(Number::default()).unwrap_err().error)
            && none.broadcast(Number::default()).is_empty()
            && none.broadcast(Number::default()).all().wait().unwrap().is_empty()
            && none.size() == 0
    };
    assert!(is_refused(&none));
    let there = |none: ActorPoolAddr<Numbered>| -> bool {
        let error = none.send(Number::default()).wait().unwrap_err().to_string();
        assert!(error.contains("Numbered>` has no members"), "{error}");
        none.broadcast(Number::default()).is_empty()
    };
    assert!(Process::spawn(there, none).wait().unwrap());
}

/// Passes on the ends that it is sent.
struct Witness(mpsc::UnboundedSender<Down>);

impl Actor for Witness {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Witness {
    fn down(&mut self, down: Down) {
        self.0.send(down).unwrap();
    }
}

#[test]
fn a_watcher_of_a_pool_hears_which_actor_has_ended() {
    System::new().block_on(async {
        let pool = ActorPool::builder().name("watched").start(Numbered, 0..3).await.unwrap();
        let (sender, mut downs) = mpsc::unbounded_channel();
        let witness = Witness(sender).start().recipient();
        pool.slice(1..).unwrap().watch(witness.clone()).await.unwrap();
        for number in [2, 1] {
            pool.managers().nth(number).unwrap().kill_process();
            let Down { name, index, reason, .. } = downs.recv().await.unwrap();
            assert_eq!((name, index), (format!("watched-{number}"), Some(number)));
            assert_eq!(reason, ExitReason::Signal(9));
        }
        // One alone is watched as one of the pool, if its address has come from there.
        let (first, manager) = (pool.addrs().next().unwrap(), pool.managers().next().unwrap());
        first.recipient::<Number>().watch(witness.clone()).await.unwrap();
        manager.kill_process();
        assert_eq!(downs.recv().await.unwrap().index, Some(0));
    });
}
