//! A handle of a shared object keeps the object alive from any process, and no longer than it
//! exists.

use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::supervisor::{ChildSpec, Restart};
use fiber::sync::{Event, Value};
use fiber::{
    AsyncManager, Broadcast, Error, Pipe, Pool, Process, Queue, Supervisor, pipe::PipeSender,
};
use fiber_test_support::signals::die;
use fiber_test_support::wait::LONG;
use serde::{Deserialize, Serialize};

/// How long an object outlives its last handle: less than in programs, to keep the tests short.
const TRANSIT_TIME: Duration = Duration::from_secs(4);
/// Longer than that.
const LATER: Duration = Duration::from_secs(5);

fiber::__private::ctor::declarative::ctor! {
    /// Prepares all processes, as `fiber::test_harness!` does.
    #[ctor]
    fn prepare() {
        fiber::__private::set_transit_time(TRANSIT_TIME);
        fiber::init();
        fiber::__private::capture_in_tests();
    }
}

/// Kills the process on the first call.
fn die_once(died: &Value<bool>) {
    if !died.replace(true).wait().unwrap() {
        die();
    }
}

/// Puts an element into a queue, and returns the queue.
fn put_seven(queue: Queue<u32>) -> Queue<u32> {
    queue.put(7).wait().unwrap();
    queue.flush().wait().unwrap();
    queue
}

fn is_used(queue: &Queue<u32>) {
    assert_eq!(queue.get().wait().unwrap(), 7);
}

#[test]
fn a_redelivered_task_can_use_a_handle_that_only_its_arguments_hold() {
    let pool = Pool::new(1).unwrap();
    let (queue, died) = (Queue::new().unwrap(), Value::new(false).unwrap());
    let task = |queue: Queue<u32>, died: Value<bool>| {
        die_once(&died);
        put_seven(queue)
    };
    let queue = pool.apply(task, (queue, died)).wait().unwrap();
    is_used(&queue);

    // This time the worker dies before it begins the task.
    let (queue, died, go) =
        (Queue::new().unwrap(), Value::new(false).unwrap(), Event::new().unwrap());
    let wait_and_die = |go: Event, died: Value<bool>| {
        go.wait_set().wait().unwrap();
        die_once(&died);
    };
    let first = pool.apply(wait_and_die, (go.clone(), died));
    let second = pool.apply(put_seven, queue);
    go.set().wait().unwrap();
    first.wait().unwrap();
    is_used(&second.wait().unwrap());
}

#[test]
fn each_incarnation_of_a_supervised_process_can_use_a_handle_that_only_its_arguments_hold() {
    let (results, died) = (Queue::new().unwrap(), Value::new(false).unwrap());
    let function = |queue: Queue<u32>, results: Queue<Queue<u32>>, died: Value<bool>| {
        die_once(&died);
        results.put(put_seven(queue)).wait().unwrap();
    };
    let child =
        ChildSpec::process("child", function, (Queue::new().unwrap(), results.clone(), died))
            .unwrap();
    let app =
        Supervisor::builder("app").child(child.restart(Restart::Transient)).start().wait().unwrap();
    is_used(&results.get().wait().unwrap());
    app.stop().wait().unwrap();
}

struct Maker;

impl Actor for Maker {
    type Context = Context<Maker>;
}

#[fiber::message(Queue<u32>)]
struct Make;

#[fiber::message]
struct Use(Queue<u32>, Queue<Queue<u32>>);

#[fiber::handlers]
impl Maker {
    fn make(&mut self, _: Make) -> Queue<u32> {
        put_seven(Queue::new().unwrap())
    }

    fn use_queues(&mut self, Use(queue, results): Use) {
        let put = queue.put(7);
        // Neither operation blocks the actor's thread.
        drop((put, results.put(queue)));
    }
}

#[test]
fn an_encoded_handle_stays_valid_after_its_senders_have_ended() {
    let forward = |queue: Queue<u32>, relay: Queue<Queue<u32>>| {
        relay.put(put_seven(queue)).wait().unwrap();
        relay.flush().wait().unwrap();
    };
    // This process's queue, in an element that another process put in.
    let relay = Queue::<Queue<u32>>::new().unwrap();
    Process::spawn(forward, (Queue::new().unwrap(), relay.clone())).wait().unwrap();
    // In an element that a consumer got and did not acknowledge.
    let trial = Queue::<Queue<u32>>::new().unwrap();
    trial.put(put_seven(Queue::new().unwrap())).wait().unwrap();
    let consume = |trial: Queue<Queue<u32>>| -> () {
        let element = trial.get_acknowledged().wait().unwrap();
        assert_eq!(element.len().wait().unwrap(), 1);
        die()
    };
    Process::spawn(consume, trial.clone()).wait().unwrap_err();
    // A worker's queue, in the result of a task.
    let pool = Pool::new(1).unwrap();
    let result = pool.apply(|()| put_seven(Queue::new().unwrap()), ());
    // An actor's queue, in its answer.
    let maker = AsyncManager::start(|()| Maker, ()).wait().unwrap();
    let answer = maker.send(Make);
    // This process's queue, in a message without an answer.
    let used = Queue::new().unwrap();
    maker.do_send(Use(Queue::new().unwrap(), used.clone()));
    // A process's queue, between two others.
    let third = pool.apply(|()| put_seven(Queue::new().unwrap()), ()).wait().unwrap();
    let second_relay = Queue::<Queue<u32>>::new().unwrap();
    let pass_on = |queue: Queue<u32>, relay: Queue<Queue<u32>>| {
        relay.put(queue).wait().unwrap();
        relay.flush().wait().unwrap();
    };
    Process::spawn(pass_on, (third, second_relay.clone())).wait().unwrap();
    // In a broadcast, for a worker that has not been started.
    let (made, small) = (Queue::new().unwrap(), Pool::new(1).unwrap());
    let broadcast = small.broadcast((Queue::<u32>::new().unwrap(), made.clone())).unwrap();

    std::thread::sleep(LATER);

    let take = |relay: Queue<Queue<u32>>| relay.get().wait().unwrap();
    is_used(&Process::spawn(take, relay).wait().unwrap());
    let again = trial.get_acknowledged().wait().unwrap();
    is_used(&again.acknowledge().wait().unwrap());
    is_used(&result.wait().unwrap());
    is_used(&answer.wait().unwrap());
    is_used(&used.get().wait().unwrap());
    is_used(&Process::spawn(take, second_relay).wait().unwrap());
    let read = |broadcast: Broadcast<(Queue<u32>, Queue<Queue<u32>>)>| {
        let value = broadcast.get().unwrap();
        value.1.put(put_seven(value.0.clone())).wait().unwrap();
    };
    small.apply(read, broadcast.clone()).wait().unwrap();
    is_used(&made.get().wait().unwrap());
}

#[test]
fn a_handle_in_the_programs_own_encoding_is_valid_while_its_owner_lives() {
    let queue = Queue::<u32>::new().unwrap();
    let written = serde_json::to_string(&queue).unwrap();
    drop(queue);
    std::thread::sleep(LATER);
    is_used(&put_seven(serde_json::from_str(&written).unwrap()));
}

/// A value that no process can decode.
#[derive(Serialize)]
struct Unreadable;

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Unreadable, D::Error> {
        Err(serde::de::Error::custom("it can't be read"))
    }
}

#[test]
fn a_pipe_ends_when_an_end_was_sent_to_a_process_that_ended_before_it_arrived() {
    let (sender, receiver) = Pipe::<u32>::one_way().unwrap();
    let never_called = |_: Unreadable, _: PipeSender<u32>| ();
    Process::spawn(never_called, (Unreadable, sender)).wait().unwrap_err();
    let error = receiver.recv().wait().unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
}

/// Shuts down the Unix sockets that a process shares with another one, and returns their number.
fn cut_links(process: u32, other: u32) -> usize {
    use rustix::net::{Shutdown, shutdown, sockopt};
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

    let pid = |pid: u32| Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let of = pidfd_open(pid(process), PidfdFlags::empty()).unwrap();
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let numbers = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
    let sockets =
        numbers.filter_map(|number| pidfd_getfd(&of, number, PidfdGetfdFlags::empty()).ok());
    sockets
        .filter(|socket| sockopt::socket_peercred(socket).is_ok_and(|peer| peer.pid == pid(other)))
        .filter(|socket| shutdown(socket, Shutdown::Both).is_ok())
        .count()
}

#[test]
fn a_handle_is_valid_after_its_link_to_the_owner_was_lost() {
    if std::env::var("FIBER_LINK").is_ok_and(|link| link == "nng") {
        return; // the peer of a TCP socket has no pid
    }
    let (made, go, used) = (Queue::new().unwrap(), Queue::new().unwrap(), Queue::new().unwrap());
    let own = |made: Queue<Value<u32>>| {
        made.put(Value::new(0).unwrap()).wait().unwrap();
        fiber_test_support::hang()
    };
    // An argument would be held by the parent, too.
    let hold = |made: Queue<Value<u32>>, go: Queue<()>, used: Queue<u32>| {
        let value = made.get().wait().unwrap();
        while go.get().wait().is_ok() {
            used.put(value.update(|count| *count += 1).wait().unwrap()).wait().unwrap();
        }
    };
    let owner = Process::spawn(own, made.clone());
    let holder = Process::spawn(hold, (made, go.clone(), used.clone()));
    let use_it = || {
        go.put(()).wait().unwrap();
        used.get().timeout(LONG).wait().unwrap()
    };
    assert_eq!(use_it(), 1);
    let (owner_pid, holder_pid) = (owner.pid().unwrap(), holder.pid().unwrap());
    for uses in [2, 3] {
        // The first cuts the link, the others what follows: connections, handshakes, links.
        let (begun, mut links) = (Instant::now(), 0);
        while begun.elapsed() < TRANSIT_TIME / 4 {
            links += cut_links(holder_pid, owner_pid) + cut_links(owner_pid, holder_pid);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(links > 0, "they have no link");
        std::thread::sleep(LATER);
        assert_eq!(use_it(), uses);
    }
    go.close().wait().unwrap();
    holder.wait().unwrap();
    owner.kill();
}

#[test]
fn a_queues_handle_whose_link_to_the_owner_was_lost_says_that_another_one_works() {
    if std::env::var("FIBER_LINK").is_ok_and(|link| link == "nng") {
        return; // the peer of a TCP socket has no pid
    }
    let (made, go, said) = (Queue::new().unwrap(), Queue::new().unwrap(), Queue::new().unwrap());
    let own = |made: Queue<Queue<u32>>| {
        let queue = Queue::new().unwrap();
        queue.put(1).wait().unwrap();
        for _ in 0..2 {
            made.put(queue.clone()).wait().unwrap();
        }
        fiber_test_support::hang()
    };
    let hold = |made: Queue<Queue<u32>>, go: Queue<()>, said: Queue<String>| {
        let put = |queue: &Queue<u32>, element| {
            queue.put(element).wait().and_then(|()| queue.flush().wait())
        };
        let first = made.get().wait().unwrap();
        put(&first, 2).unwrap();
        said.put("ready".into()).wait().unwrap();
        go.get().wait().unwrap();
        said.put(put(&first, 3).unwrap_err().to_string()).wait().unwrap();
        let second = made.get().wait().unwrap();
        put(&second, 4).unwrap();
        let elements: Vec<_> = (0..3).map(|_| second.get().wait().unwrap()).collect();
        said.put(format!("{elements:?}")).wait().unwrap();
        put(&first, 5).unwrap_err();
    };
    let owner = Process::spawn(own, made.clone());
    let holder = Process::spawn(hold, (made, go.clone(), said.clone()));
    let next = || said.get().timeout(LONG).wait().unwrap();
    assert_eq!(next(), "ready");
    let (owner_pid, holder_pid) = (owner.pid().unwrap(), holder.pid().unwrap());
    assert!(cut_links(holder_pid, owner_pid) + cut_links(owner_pid, holder_pid) > 0);
    go.put(()).wait().unwrap();
    let error = next();
    assert!(error.contains("get another handle of the queue"), "{error}");
    assert_eq!(next(), "[1, 2, 4]");
    holder.wait().unwrap();
    owner.kill();
}
