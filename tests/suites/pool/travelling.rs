//! Outputs that travel to other processes.

use fiber::{Array, Error, Output, Pool, Process, Queue};
use fiber_test_support::wait::wait_until;

use super::{pool, sleep_ms, square};

#[test]
fn outputs_travel_in_arguments_and_results() {
    let pool = pool(2);
    let output = pool.apply(square, 3).output();
    let add = |output: Output<u64>, more: u64| output.get().wait().unwrap() + more;
    assert_eq!(pool.apply(add, (output.clone(), 1)).wait().unwrap(), 10);
    let inside = |outputs: Vec<Output<u64>>, more: u64| {
        let values: Vec<_> = outputs.iter().map(|output| output.get().wait().unwrap()).collect();
        values.iter().sum::<u64>() + more
    };
    let outputs = vec![output.clone(), output.clone(), pool.apply(square, 4).output()];
    assert_eq!(pool.apply(inside, (outputs, 1)).wait().unwrap(), 35);
    // It comes home.
    let back = pool.apply(|output: Output<u64>| output, output).wait().unwrap();
    assert!(back.is_ready());
    assert_eq!(pool.apply(square, back).wait().unwrap(), 81);
}

#[test]
fn outputs_travel_before_their_values_are_there() {
    let pool = pool(1);
    let queue = Queue::<Output<u64>>::new().unwrap();
    let go = Queue::<u64>::new().unwrap();
    let late = pool.apply(|go: Queue<u64>| go.get().wait().unwrap(), go.clone()).output();
    queue.put(late).wait().unwrap();
    let take = |queue: Queue<Output<u64>>, go: Queue<u64>| {
        let output = queue.get().wait().unwrap();
        assert!(!output.is_ready());
        go.put(7).wait().unwrap();
        (output.get().wait().unwrap(), output.is_ready())
    };
    let taken = Process::spawn(take, (queue, go)).wait().unwrap();
    assert_eq!(taken, (7, true));
}

#[test]
fn tasks_that_wait_for_values_of_other_processes_say_so() {
    let go = Queue::<u64>::new().unwrap();
    let results = Queue::<Output<u64>>::new().unwrap();
    let make = |results: Queue<Output<u64>>, go: Queue<u64>| {
        let pool = Pool::new(1).unwrap();
        let late = pool.apply(|go: Queue<u64>| go.get().wait().unwrap(), go).output();
        results.put(late.clone()).wait().unwrap();
        late.get().wait().unwrap();
        // Until the other process has the value.
        results.put(late).wait().unwrap();
    };
    let maker = Process::spawn(make, (results.clone(), go.clone()));
    let (pool, late) = (pool(1), results.get().wait().unwrap());
    let squared = pool.apply(square, late);
    let calls = pool.stats().calls;
    assert_eq!((calls[0].held, &*calls[0].waits_for), (1, &["another process".to_string()][..]));
    go.put(3).wait().unwrap();
    assert_eq!(squared.wait().unwrap(), 9);
    drop(results.get().wait().unwrap());
    maker.wait().unwrap();
}

#[test]
fn outputs_of_other_processes_are_inputs_of_pools() {
    let make = |results: Queue<Output<Array<u64>>>, done: Queue<()>| {
        let pool = Pool::new(1).unwrap();
        let fill = |from: u64| (from..from + 100_000).collect::<Array<u64>>();
        for output in pool.map(fill, [0, 5]).outputs() {
            results.put(output).wait().unwrap();
        }
        done.get().wait().unwrap();
    };
    let (results, done) = (Queue::new().unwrap(), Queue::new().unwrap());
    let maker = Process::spawn(make, (results.clone(), done.clone()));
    let [one, two] = [(); 2].map(|()| results.get().wait().unwrap());
    let pool = pool(1);
    let dot = |a: Array<u64>, b: Array<u64>| a.iter().zip(&*b).map(|(a, b)| a * b).sum::<u64>();
    let expected = (0..100_000).map(|x| x * (x + 5)).sum::<u64>();
    assert_eq!(pool.apply(dot, (one, two)).wait().unwrap(), expected);
    done.put(()).wait().unwrap();
    maker.wait().unwrap();
}

#[test]
fn a_task_that_waits_for_an_output_lends_its_slot() {
    let pool = pool(1);
    let queue = Queue::<Output<u64>>::new().unwrap();
    let wait = |queue: Queue<Output<u64>>| queue.get().wait().unwrap().get().wait().unwrap();
    let waiting = pool.apply(wait, queue.clone());
    // The only worker runs the task that waits.
    queue.put(pool.apply(square, 6).output()).wait().unwrap();
    assert_eq!(waiting.wait().unwrap(), 36);
}

#[test]
fn failures_travel_as_text() {
    let pool = pool(1);
    let fail = |x: u64| if x == 1 { Err("no value for 1") } else { Ok(x) };
    let failed = pool.try_map(fail, 0..2).outputs().remove(1);
    let ask = |output: Output<u64>| match output.get().wait() {
        Err(Error::OutputFailed { problem }) => problem,
        other => panic!("{other:?}"),
    };
    let problem = pool.apply(ask, failed).wait().unwrap();
    assert!(problem.contains("task 1 (`") && problem.contains("no value for 1"), "{problem}");
}

#[test]
fn an_output_is_gone_with_the_process_that_made_the_call() {
    let make = |results: Queue<Output<u64>>| {
        let pool = Pool::new(1).unwrap();
        let slow = |x: u64| {
            sleep_ms(60_000);
            x
        };
        results.put(pool.apply(slow, 1).output()).wait().unwrap();
        results.flush().wait().unwrap();
        std::process::exit(3);
    };
    let results = Queue::new().unwrap();
    let maker = Process::spawn(make, results.clone());
    let output: Output<u64> = results.get().wait().unwrap();
    maker.wait().unwrap_err();
    let problem = output.get().wait().unwrap_err();
    assert!(matches!(problem, Error::OwnerEnded { .. }), "{problem}");
    let problem = pool(1).apply(square, output).wait().unwrap_err();
    assert!(matches!(problem, Error::InputFailed { .. }), "{problem}");
}

#[test]
fn the_last_handle_in_any_process_frees_the_value() {
    let pool = pool(1);
    let kept = Queue::<Output<u64>>::new().unwrap();
    let (begun, go) = (Queue::<()>::new().unwrap(), Queue::<()>::new().unwrap());
    let hold = |begun: Queue<()>, go: Queue<()>| {
        begun.put(()).wait().unwrap();
        go.get().wait().unwrap();
    };
    let holding = pool.apply(hold, (begun.clone(), go.clone()));
    begun.get().wait().unwrap();
    let output = pool.apply(square, 5).output();
    kept.put(output.clone()).wait().unwrap();
    drop(output);
    // The queue has a handle, so the task stays.
    let take = |kept: Queue<Output<u64>>| drop(kept.get().wait().unwrap());
    let unfinished = || {
        let tasks = pool.stats().tasks;
        tasks.waiting + tasks.pending
    };
    assert_eq!(unfinished(), 2);
    let other = Pool::new(1).unwrap();
    other.apply(take, kept).wait().unwrap();
    wait_until("the cancellation", || unfinished() <= 1);
    go.put(()).wait().unwrap();
    holding.wait().unwrap();
}
