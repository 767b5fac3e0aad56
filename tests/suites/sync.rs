//! Synchronization and shared state: locks, events, values, maps and lists.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use fiber::sync::{
    Barrier, Condition, Event, List, Lock, Map, Namespace, RwLock, Semaphore, Value,
};
use fiber::{Error, Pool, Process, Reply};
use fiber_test_support::wait::wait_until;

const MOMENT: Duration = Duration::from_millis(20);

/// Runs a function in a grandchild process.
macro_rules! in_grandchild {
    (|$name:ident: $type:ty| $body:expr, $args:expr) => {{
        let child = |$name: $type| Process::spawn(|$name: $type| $body, $name).wait().unwrap();
        Process::spawn(child, $args).wait().unwrap()
    }};
}

/// Starts a child that holds something until it is killed.
macro_rules! holder {
    ($args:expr, $hold:expr) => {{
        let held = Event::new().unwrap();
        let child: Process<()> = Process::spawn($hold, ($args, held.clone()));
        held.wait_set().wait().unwrap();
        child
    }};
}

/// Sleeps until the process is killed.
pub(crate) fn hang<G>(_held: G, ready: &Event) {
    ready.set().wait().unwrap();
    Event::new().unwrap().wait_set().wait().unwrap();
}

fn timed_out<T: std::fmt::Debug>(outcome: fiber::Result<T>) -> String {
    match outcome.unwrap_err() {
        error @ Error::TimedOut { .. } => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_withdrawn_request_does_not_get_the_lock() {
    let lock = Lock::new().unwrap();
    let held = lock.lock().wait().unwrap();
    assert!(lock.try_lock().wait().unwrap().is_none());
    let message = timed_out(lock.lock().timeout(MOMENT).wait());
    assert!(message.contains(concat!("taking the lock made at ", file!())), "{message}");
    drop(lock.lock());
    let patience = "the lock is held by the first process, which waits for this one";
    assert!(
        in_grandchild!(|lock: Lock| lock.lock().timeout(MOMENT).wait().is_err(), lock.clone()),
        "{patience}"
    );
    drop(held);
    assert!(lock.try_lock().wait().unwrap().is_some());
    assert!(lock.try_lock().wait().unwrap().is_some(), "a dropped guard releases the lock");
}

#[test]
fn a_lock_is_granted_in_the_order_of_the_requests() {
    let lock = Lock::new().unwrap();
    let held = lock.lock().wait().unwrap();
    let mut waiting: Vec<_> = (0..5).map(|_| lock.lock()).collect();
    drop(held);
    while !waiting.is_empty() {
        let next = waiting.remove(0).wait().unwrap();
        assert!(lock.try_lock().wait().unwrap().is_none());
        drop(next);
    }
}

#[test]
fn the_request_of_a_dead_process_is_skipped() {
    let lock = Lock::new().unwrap();
    let held = lock.lock().wait().unwrap();
    let wait = |lock: Lock, ready: Event| {
        let waits = lock.lock();
        // Requests of one process are handled in their order, so the lock request was handled.
        drop(lock.try_lock().wait().unwrap());
        ready.set().wait().unwrap();
        drop(waits.wait());
    };
    let child = holder!(lock.clone(), wait);
    let next = lock.lock();
    child.kill();
    child.wait().unwrap_err();
    drop(held);
    assert!(!next.wait().unwrap().was_abandoned(), "the dead process did not hold it");
}

#[test]
fn a_lock_has_many_readers_or_one_writer() {
    let lock = RwLock::new().unwrap();
    let readers = (lock.read().wait().unwrap(), lock.read().wait().unwrap());
    assert!(in_grandchild!(
        |lock: RwLock| lock.try_write().wait().unwrap().is_none(),
        lock.clone()
    ));
    assert!(in_grandchild!(|lock: RwLock| lock.try_read().wait().unwrap().is_some(), lock.clone()));
    let writes = lock.write();
    assert!(
        lock.try_read().wait().unwrap().is_none(),
        "readers do not overtake a writer that waits"
    );
    drop(readers);
    let writer = writes.wait().unwrap();
    assert!(lock.try_read().wait().unwrap().is_none());
    drop(writer);
    let hold = |lock: RwLock, ready: Event| hang(lock.write().wait().unwrap(), &ready);
    let child = holder!(lock.clone(), hold);
    child.kill();
    assert!(lock.read().wait().unwrap().was_abandoned());
    assert!(lock.write().wait().unwrap().was_abandoned(), "readers can't put it right");
    assert!(!lock.write().wait().unwrap().was_abandoned());
}

#[test]
fn permits_are_limited_and_released_when_their_holder_dies() {
    let semaphore = Semaphore::new(3).unwrap();
    let hold = |semaphore: Semaphore, ready: Event| {
        hang(semaphore.acquire_many(2).wait().unwrap(), &ready)
    };
    let child = holder!(semaphore.clone(), hold);
    assert_eq!(semaphore.available().wait().unwrap(), 1);
    let all = semaphore.acquire_many(3);
    child.kill();
    let all = all.wait().unwrap();
    assert!(all.was_abandoned());
    assert!(semaphore.try_acquire().wait().unwrap().is_none());
    semaphore.add_permits(1);
    semaphore.acquire().wait().unwrap().forget();
    drop(all);
    assert_eq!(semaphore.available().wait().unwrap(), 3);
    let error = semaphore.acquire_many(5).wait().unwrap_err().to_string();
    assert!(error.contains("more permits") && error.contains('4'), "{error}");
}

#[test]
fn a_semaphore_has_no_more_permits_than_can_be_counted() {
    let semaphore = Semaphore::new(u32::MAX).unwrap();
    let held = semaphore.acquire_many(2).wait().unwrap();
    semaphore.add_permits(1);
    drop(held);
    assert_eq!(semaphore.available().wait().unwrap(), u32::MAX);
}

#[test]
fn an_event_wakes_all_until_it_is_cleared() {
    let (event, met) = (Event::new().unwrap(), Barrier::new(4).unwrap());
    let wait = |event: Event, met: Barrier| {
        let waits = event.wait_set();
        met.wait_all().wait().unwrap();
        waits.wait().unwrap();
        event.is_set().wait().unwrap()
    };
    let children: Vec<_> =
        (0..3).map(|_| Process::spawn(wait, (event.clone(), met.clone()))).collect();
    met.wait_all().wait().unwrap();
    assert!(!event.is_set().wait().unwrap());
    event.set().wait().unwrap();
    assert!(children.into_iter().all(|child| child.wait().unwrap()));
    event.wait_set().wait().unwrap();
    event.clear().wait().unwrap();
    timed_out(event.wait_set().timeout(MOMENT).wait());
}

#[test]
fn a_barrier_does_not_count_dead_parties() {
    let barrier = Barrier::new(3).unwrap();
    let meet = |barrier: Barrier| barrier.wait_all().wait().unwrap();
    let dead = Process::spawn(meet, barrier.clone());
    wait_until("the first party", || barrier.waiting().wait().unwrap() > 0);
    dead.kill();
    dead.wait().unwrap_err();
    timed_out(barrier.wait_all().timeout(MOMENT).wait());
    let children: Vec<_> = (0..2).map(|_| Process::spawn(meet, barrier.clone())).collect();
    let here = barrier.wait_all();
    let mut places: Vec<_> = children.into_iter().map(|child| child.wait().unwrap()).collect();
    places.push(here.wait().unwrap());
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2]);
}

#[test]
fn notify_wakes_requests_that_sleep_on_a_condition() {
    let (changed, stock) = (Condition::new().unwrap(), Value::new(0_i32).unwrap());
    let take = |changed: Condition, stock: Value<i32>| {
        let mut held = changed.lock().wait().unwrap();
        while stock.get().wait().unwrap() == 0 {
            held = held.wait_notified().wait().unwrap();
        }
        stock.update(|stock| *stock -= 1).wait().unwrap();
        drop(held);
    };
    let children: Vec<_> =
        (0..3).map(|_| Process::spawn(take, (changed.clone(), stock.clone()))).collect();
    for _ in 0..3 {
        let held = changed.lock().wait().unwrap();
        stock.update(|stock| *stock += 1).wait().unwrap();
        held.notify_one();
    }
    changed.notify_all();
    children.into_iter().for_each(|child| child.wait().unwrap());
    assert_eq!(stock.get().wait().unwrap(), 0);

    let (held, woken) = changed.lock().wait().unwrap().wait_notified_for(MOMENT).wait().unwrap();
    assert!(!woken && !held.was_abandoned());
    timed_out(held.wait_notified().timeout(MOMENT).wait());
    let hold = |changed: Condition, ready: Event| hang(changed.lock().wait().unwrap(), &ready);
    let child = holder!(changed.clone(), hold);
    child.kill();
    assert!(changed.lock().wait().unwrap().was_abandoned());
}

#[test]
fn maps_lists_and_namespaces_are_shared_with_workers_and_their_children() {
    let pool = Pool::new(3).unwrap();
    let map = Map::<String, Vec<u32>>::new().unwrap();
    let note = |n: u32, map: Map<String, Vec<u32>>| {
        let key = if n.is_multiple_of(2) { "even" } else { "odd" };
        map.update(&key.into(), move |list| list.get_or_insert_default().push(n)).wait().unwrap();
    };
    pool.map(note, (0..40).map(|n| (n, map.clone())).collect::<Vec<_>>()).wait().unwrap();
    let mut odd = map.get(&"odd".into()).wait().unwrap().unwrap();
    odd.sort_unstable();
    assert_eq!(odd, (0..40).filter(|n| n % 2 == 1).collect::<Vec<_>>());
    assert_eq!(map.len().wait().unwrap(), 2);
    let mut keys = map.keys().wait().unwrap();
    keys.sort_unstable();
    assert_eq!(keys, ["even", "odd"]);
    assert!(map.contains_key(&"odd".into()).wait().unwrap());
    assert_eq!(map.remove(&"odd".into()).wait().unwrap().unwrap().len(), 20);
    assert_eq!(map.entries().wait().unwrap().len(), 1);
    map.update(&"even".into(), |list| *list = None).wait().unwrap();
    assert!(map.is_empty().wait().unwrap());

    let list = List::<u32>::new().unwrap();
    let push = |n: u32, list: List<u32>| list.push(n).wait().unwrap();
    pool.map(push, (0..40).map(|n| (n, list.clone())).collect::<Vec<_>>()).wait().unwrap();
    let mut all = list.to_vec().wait().unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
    list.clear().wait().unwrap();
    list.extend([1, 2, 4]).wait().unwrap();
    list.insert(2, 3).wait().unwrap();
    list.set(0, 10).wait().unwrap();
    assert_eq!(list.update(1, |n| *n *= 10).wait().unwrap(), 20);
    assert_eq!((list.get(3).wait().unwrap(), list.get(4).wait().unwrap()), (Some(4), None));
    assert_eq!((list.remove(0).wait().unwrap(), list.pop().wait().unwrap()), (Some(10), Some(4)));
    assert_eq!(list.to_vec().wait().unwrap(), [20, 3]);
    let error = list.set(7, 0).wait().unwrap_err().to_string();
    assert!(error.contains("index 7") && error.contains("2 items"), "{error}");

    let names = Namespace::new().unwrap();
    in_grandchild!(|names: Namespace| names.set("rate", 0.5).wait().unwrap(), names.clone());
    assert_eq!(names.get::<f64>("rate").wait().unwrap(), Some(0.5));
    names.get::<String>("rate").wait().unwrap_err();
    assert_eq!(names.names().wait().unwrap(), ["rate"]);
    assert!(names.remove("rate").wait().unwrap());
}

#[test]
fn shared_objects_can_be_values_of_shared_objects() {
    let outer = Map::<String, List<Value<u32>>>::new().unwrap();
    let fill = |outer: Map<String, List<Value<u32>>>, value: Value<u32>| {
        let inner = outer.get(&"inner".into()).wait().unwrap().unwrap();
        inner.push(value.clone()).wait().unwrap();
        value.set(7).wait().unwrap();
    };
    let inner = List::new().unwrap();
    outer.insert("inner".into(), inner.clone()).wait().unwrap();
    Process::spawn(fill, (outer, Value::new(1).unwrap())).wait().unwrap();
    assert_eq!(inner.get(0).wait().unwrap().unwrap().get().wait().unwrap(), 7);
}

#[test]
fn operations_fail_after_the_owner_has_ended() {
    let value = Process::spawn(|n: u32| Value::new(n).unwrap(), 3).wait().unwrap();
    let error = value.get().wait().unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::OwnerEnded { .. }), "{message}");
    assert!(
        message.contains(concat!("the value made at ", file!())) && message.contains("is gone"),
        "{message}"
    );

    let make = |give: Value<Option<Lock>>, ready: Event| {
        let lock = Lock::new().unwrap();
        give.set(Some(lock.clone())).wait().unwrap();
        hang(lock.lock().wait().unwrap(), &ready);
    };
    let give = Value::new(None).unwrap();
    let child = holder!(give.clone(), make);
    let lock = give.get().wait().unwrap().unwrap();
    let waits = lock.lock();
    assert!(lock.try_lock().wait().unwrap().is_none());
    child.kill();
    let error = waits.wait().unwrap_err();
    assert!(matches!(error, Error::OwnerEnded { .. }), "{error}");
}

#[test]
fn a_handle_of_another_session_is_refused() {
    let lock = Lock::new().unwrap();
    let mut other = serde_json::to_value(&lock).unwrap();
    other["session"] = 7.into();
    let other: Lock = serde_json::from_value(other).unwrap();
    assert!(matches!(other.lock().wait().unwrap_err(), Error::OtherSession { .. }));
    assert_ne!(other, lock);
}

#[test]
fn async_code_awaits() {
    actix::System::new().block_on(async {
        let lock = Lock::new().unwrap();
        let held = lock.lock().await.unwrap();
        assert!(lock.lock().timeout(MOMENT).await.is_err());
        drop(held);
        drop(lock.lock().await.unwrap());
    });
}

#[test]
fn answers_that_are_there_are_ready_at_once_however_many() {
    actix::System::new().block_on(async {
        let value = Value::new(7).unwrap();
        let mut replies: Vec<_> = (0..300).map(|_| value.get()).collect();
        // Answers come in the order of the requests.
        let last = replies.pop().expect("there are some");
        assert_eq!(last.await.unwrap(), 7);
        let ready = poll_fn(|context| {
            let is_ready = |reply: &mut Reply<_>| Pin::new(reply).poll(context).is_ready();
            Poll::Ready(replies.iter_mut().map(is_ready).filter(|ready| *ready).count())
        });
        assert_eq!(ready.await, 299);
    });
}
