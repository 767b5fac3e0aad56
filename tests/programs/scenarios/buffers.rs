//! Programs that take results slowly, or whose tasks are slow.

use std::time::Duration;

use fiber::{Array, Pool, Process, Queue, Result};
use fiber_test_support::scenario;
use fiber_test_support::wait::{wait_for, wait_until};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_bytes::ByteBuf;

const SECOND: Duration = Duration::from_secs(1);
const MEMORY: u64 = 1 << 30;
/// The number of large results that the program takes.
const TAKEN: usize = 40;
/// The number of small results before the large ones.
const SMALL: u64 = 20_000;

fn give(size: u64) -> ByteBuf {
    ByteBuf::from(vec![7; size as usize])
}

fn work(_: u32) {
    std::thread::sleep(Duration::from_millis(5));
}

/// Prints the peak memory of this process.
fn print_peak() {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line =
        status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel reports it");
    let kib: u64 =
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("it is a number");
    println!("peak {}", kib / 1024);
}

/// Takes some results of an endless call, and runs other calls in between.
#[scenario("slow consumer")]
fn slow_consumer() {
    fiber::init();
    let [form, size]: [String; 2] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().expect("two arguments");
    let size: u64 = size.parse().expect("a size");
    setrlimit(Resource::Data, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) })
        .expect("the limit can be lowered");
    let pool = Pool::new(2).expect("the pool starts");
    let sizes = std::iter::repeat(size);
    let results: Box<dyn Iterator<Item = Result<ByteBuf>>> = match &*form {
        "imap" => Box::new(pool.imap(give, sizes).wait()),
        "imap_unordered" => Box::new(pool.imap_unordered(give, sizes).wait()),
        "imap, small ones first" => {
            let sizes = (0..).map(move |index| if index < SMALL { 8 } else { size });
            Box::new(pool.imap(give, sizes).wait())
        }
        other => panic!("unknown form `{other}`"),
    };
    let mut large = results
        .map(|result| result.expect("the task succeeds"))
        .filter(|result| result.len() as u64 == size);
    for _ in 0..TAKEN {
        large.next().expect("the call is endless");
        pool.map(work, 0..16).wait().expect("another call succeeds");
    }
    print_peak();
}

/// Maps small arguments, then large ones in slow tasks.
#[scenario("slow worker")]
fn slow_worker() {
    fiber::init();
    let pool = Pool::new(2).expect("the pool starts");
    let small = std::iter::repeat_n(0, 60_000);
    let large = std::iter::repeat_n(1 << 20, 400);
    let take = |bytes: ByteBuf| {
        if !bytes.is_empty() {
            work(0);
        }
        bytes.len()
    };
    let lengths = pool.map(take, small.chain(large).map(give)).wait().expect("the map succeeds");
    assert_eq!(lengths.into_iter().sum::<usize>(), 400 << 20);
    print_peak();
}

/// Takes results of three endless calls in turn, while other calls run in between, and prints the
/// memory of values at its highest and at the end.
#[scenario("value memory")]
fn value_memory() {
    fiber::init();
    let pool = Pool::new(2).expect("the pool starts");
    let mut calls: Vec<_> =
        (0..3).map(|_| pool.imap_unordered(give, std::iter::repeat(1 << 20)).wait()).collect();
    let mut highest = 0;
    for _ in 0..TAKEN {
        for call in &mut calls {
            let result = call.next().expect("the call is endless").expect("the task succeeds");
            assert_eq!(result.len(), 1 << 20);
        }
        pool.map(work, 0..16).wait().expect("another call succeeds");
        highest = highest.max(fiber::value_memory().stored);
    }
    println!("highest {}", highest >> 20);
    println!("{}", fiber::tree().to_string().lines().last().expect("a line of memory"));
    drop(calls);
    pool.stop().wait().expect("the pool stops");
    println!("left {}", fiber::value_memory().stored);
    print_peak();
}

/// Fills an unbounded queue while its elements can't go to a file, and another one, from this
/// process and from a child. Prints when elements wait and when they get in.
#[scenario("full queues")]
fn full_queues() {
    fiber::init();
    let [first, second] = [(); 2].map(|()| Queue::<ByteBuf>::new().expect("a queue is made"));
    let mut stored = 0;
    while first.try_put(give(1 << 20)).wait().expect("the queue lives").is_ok() {
        stored += 1;
    }
    // The first of them found that there is no file, and was stored beyond the limit.
    println!("stored {stored}");
    // The queue says so after a second.
    first.put(give(1 << 20)).timeout(3 * SECOND).wait().expect_err("there is no room");
    // An empty queue takes an element, however full the memory is.
    second.put(give(8 << 20)).wait().expect("it is empty");
    for _ in 0..9 {
        first.get().wait().expect("there is an element");
    }
    // The second queue's element alone keeps this one out.
    let waiting = first.put(give(1 << 20)).timeout(Duration::MAX);
    second.get().wait().expect("there is an element");
    waiting.wait().expect("there is room again");
    drop((first, second));

    let queue = Queue::<ByteBuf>::new().expect("a queue is made");
    let produce = |queue: Queue<ByteBuf>| {
        (0..200).try_for_each(|_| queue.put(give(1 << 20)).wait()).expect("the queue lives");
    };
    let producer = Process::spawn(produce, queue.clone());
    for _ in 0..200 {
        assert_eq!(queue.get().wait().expect("an element comes").len(), 1 << 20);
        work(0);
    }
    producer.wait().expect("all elements are in");
    drop(queue);
    println!("left {}", fiber::value_memory().stored);
    print_peak();
}

/// Puts 200 elements into a queue, and takes them.
#[scenario("spilled queue")]
fn spilled_queue() {
    fiber::init();
    let queue = Queue::<ByteBuf>::new().expect("a queue is made");
    let mut element = give(1 << 20);
    for number in 0..200 {
        element[0] = number;
        queue.put(element.clone()).wait().expect("an unbounded queue takes it");
    }
    println!("spilled {}", fiber::value_memory().spilled >> 20);
    println!("stored {}", fiber::value_memory().stored >> 20);
    for number in 0..200 {
        let element = queue.get().wait().expect("there is an element");
        assert_eq!((element.len(), element[0]), (1 << 20, number));
    }
    println!("left {}", fiber::value_memory().spilled + fiber::value_memory().stored);
    print_peak();
}

/// Returns how many bytes the values of all processes take in memory, and in files.
fn values_of_all() -> (u64, u64) {
    let report = fiber::stats().expect("the program has started").report;
    let usages = report.processes.iter().filter_map(|process| process.usage.as_ref());
    usages.fold((0, 0), |(in_memory, in_files), usage| {
        (in_memory + usage.stored + usage.shared, in_files + usage.spilled)
    })
}

/// Keeps the outputs of 200 tasks, and takes them.
#[scenario("spilled outputs")]
fn spilled_outputs() {
    fiber::init();
    tracing_subscriber::fmt().with_writer(std::io::stdout).with_ansi(false).init();
    let pool = Pool::new(2).expect("the pool starts");
    let fill = |number: u8| vec![number; 1 << 20];
    let outputs = pool.map(fill, (0..200).collect::<Vec<u8>>()).outputs();
    wait_until("all outputs", || outputs.iter().all(|output| output.is_ready()));
    // Heartbeats say what workers have.
    let spilled = wait_for("a report of all values", || match values_of_all() {
        (in_memory, in_files) if in_memory + in_files >= 200 << 20 => Ok(in_files),
        less => Err(less),
    });
    println!("spilled {}", spilled >> 20);
    println!("stored {}", fiber::value_memory().stored >> 20);
    let last = |bytes: Vec<u8>| u64::from(bytes[(1 << 20) - 1]);
    let sum = pool.map(last, outputs.clone()).reduce(|a, b| a + b).wait();
    assert_eq!(sum.expect("the tasks succeed"), Some(199 * 200 / 2));
    drop(outputs);
    wait_until("the end of all values", || values_of_all().1 == 0);
    println!("left {}", fiber::value_memory().spilled + (fiber::value_memory().stored >> 20));
    print_peak();
}

/// Puts arrays into a queue, from which two processes move them to another, and takes them there,
/// all on one thread.
#[scenario("circle")]
fn circle() {
    const COUNT: usize = 300;
    fiber::init();
    let [there, back] = [(); 2].map(|()| Queue::<Array<u8>>::new().expect("a queue is made"));
    let carry = |there: Queue<Array<u8>>, back: Queue<Array<u8>>| {
        while let Ok(element) = there.get_acknowledged().wait() {
            back.put((*element).clone()).wait().expect("the program lives");
            back.flush().wait().expect("the program lives");
            element.acknowledge().wait().expect("the program lives");
        }
    };
    let _carriers = [(); 2].map(|()| Process::spawn(carry, (there.clone(), back.clone())));
    for number in 0..COUNT {
        let array = Array::from(vec![number as u8; 8000 + number * 1000]);
        there.put(array).wait().expect("an unbounded queue takes it");
    }
    let sum: usize = (0..COUNT).map(|_| back.get().wait().expect("it comes back").len()).sum();
    assert_eq!(sum, (0..COUNT).map(|number| 8000 + number * 1000).sum::<usize>());
    println!("all came back");
}

fn slow_task(_: u32) {
    std::thread::sleep(SECOND / 4);
}

/// Makes a call while the results of another one, which nothing takes, fill the memory of values.
#[scenario("slow call")]
fn slow_call() {
    fiber::init();
    tracing_subscriber::fmt().with_writer(std::io::stdout).with_ansi(false).init();
    let pool = Pool::new(2).expect("the pool starts");
    let waiting = pool.map(give, [1 << 20; 4]);
    wait_until("results in memory", || fiber::value_memory().stored >= 1 << 20);
    pool.map(slow_task, 0..40).wait().expect("the tasks succeed");
    println!("all tasks ran");
    assert_eq!(waiting.wait().expect("the tasks succeed").len(), 4);
}

/// Takes the outputs of an endless call as the arguments of another, whose tasks are slower.
#[scenario("outputs without end")]
fn outputs_without_end() {
    fiber::init();
    // Values that are in no shared memory, of about 100 kB.
    let make = |x: u64| vec![("x".repeat(100), x); 1000];
    let take = |values: Vec<(String, u64)>, place: u64| {
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(values[999].1, place);
        place
    };
    let [makers, takers] = [(); 2].map(|()| Pool::new(1).expect("the pool starts"));
    let made = makers.imap(make, 0..).outputs().wait();
    let taken = takers.imap(take, made.zip(0..)).wait();
    let mut highest = 0;
    for (place, taken) in (0..300).zip(taken) {
        assert_eq!(taken.expect("the task succeeds"), place);
        highest = highest.max(fiber::value_memory().stored);
    }
    println!("highest {}", highest >> 20);
}

/// Merges values in tasks that take four times as long as those that make them.
#[scenario("slow merges")]
fn slow_merges() {
    fiber::init();
    // Below the length at which bytes travel apart.
    const SIZE: u64 = 20_000;
    let make = |_: u64| {
        work(0);
        give(SIZE)
    };
    let merge = |one: ByteBuf, _: ByteBuf| {
        (0..4).for_each(work);
        one
    };
    let pool = Pool::new(2).expect("the pool starts");
    let merged = pool.map(make, 0..100).reduce(merge).output().expect("there are values");
    let mut highest = 0;
    wait_until("the last merge", || {
        highest = highest.max(fiber::value_memory().stored);
        merged.is_ready()
    });
    assert_eq!(merged.get().wait().expect("the tasks succeed"), give(SIZE));
    println!("highest {}", highest / SIZE);
}
