//! Outputs: tasks that take the values of others.

use fiber::config::value_memory;
use fiber::sync::Event;
use fiber::{Array, Error, Output, Process, Queue, as_completed, first};
use fiber_test_support::wait::wait_until;

use super::{pid_after, pool, square};
use crate::arrays::is_sharing;

fn add(a: u64, b: u64) -> u64 {
    a + b
}

fn sum(numbers: Vec<u64>) -> u64 {
    numbers.iter().sum()
}

fn fail(what: String) -> Result<u64, String> {
    Err(what)
}

#[test]
fn outputs_stand_for_values_lists_and_literals_for_themselves() {
    let pool = pool(2);
    let (three, four) = (pool.apply(add, (1, 2)).output(), pool.apply(square, 2).output());
    assert_eq!(pool.apply(add, (three.clone(), four.clone())).wait().unwrap(), 7);
    assert_eq!(pool.apply(add, (three.clone(), 10)).wait().unwrap(), 13);
    assert_eq!(pool.apply(square, three.clone()).wait().unwrap(), 9);
    let numbers = pool.map(square, 0..10).outputs();
    assert_eq!(numbers.len(), 10);
    assert_eq!(pool.apply(sum, numbers.clone()).wait().unwrap(), 285);
    let weigh = |numbers: Vec<u64>, weight: u64| weight * numbers.iter().sum::<u64>();
    assert_eq!(pool.apply(weigh, (numbers.clone(), three)).wait().unwrap(), 3 * 285);
    assert_eq!(pool.apply(sum, Vec::<Output<u64>>::new()).wait().unwrap(), 0);
    // Also in maps, lazily and in any order.
    assert_eq!(pool.map(square, numbers.clone()).wait().unwrap()[3], 81);
    let with_number = numbers.clone().into_iter().zip(0..);
    let sums: Result<Vec<_>, _> = pool.imap(add, with_number).wait().collect();
    assert_eq!(sums.unwrap(), (0..10).map(|x| x * x + x).collect::<Vec<_>>());
    let pairs: Vec<_> = numbers.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(pool.imap_unordered(add, pairs).wait().map(|sum| sum.unwrap()).sum::<u64>(), 285);
    assert_eq!(four.get().wait().unwrap(), 4);
    assert_eq!(four.get().wait().unwrap(), 4, "it can be taken again");
}

#[tokio::test]
async fn an_output_is_a_future() {
    let pool = pool(1);
    let output = pool.apply(add, (1, 2)).output();
    assert_eq!(output.clone().await.unwrap(), 3);
    assert!(output.is_ready());
    assert_eq!(pool.apply(square, output).await.unwrap(), 9);
}

#[test]
fn a_value_that_was_put_may_be_taken_often_with_its_handles() {
    let pool = pool(2);
    let queue = Queue::new().unwrap();
    let put = pool.put(("numbers".to_string(), queue.clone())).unwrap();
    let send = |(name, queue): (String, Queue<u64>), x: u64| {
        queue.put(x).wait().unwrap();
        name
    };
    let items = (0..20).map({
        let put = put.clone();
        move |x| (put.clone(), x)
    });
    assert_eq!(pool.map(send, items).wait().unwrap(), vec!["numbers"; 20]);
    let mut numbers: Vec<_> = (0..20).map(|_| queue.get().wait().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert_eq!(put.get().wait().unwrap().0, "numbers");
}

#[test]
fn large_arrays_stay_in_their_memory() {
    fn multiply() {
        let pool = pool(2);
        let fill = |value: f64| Array::from(vec![value; 1 << 20]);
        let arrays = pool.map(fill, [1.0, 2.0]).outputs();
        let dot =
            |a: Array<f64>, b: Array<f64>| -> f64 { a.iter().zip(&*b).map(|(a, b)| a * b).sum() };
        let inputs = (arrays[0].clone(), arrays[1].clone());
        assert_eq!(pool.apply(dot, inputs).wait().unwrap(), 2.0 * f64::from(1 << 20));
        // This process has borrowed them where memory is shared, and stores next to nothing.
        let lists = pool.map(|fill: u8| vec![fill; 1 << 20], [1, 2]).outputs();
        let total = pool.apply(|lists: Vec<Vec<u8>>| lists.concat().len(), lists).wait().unwrap();
        assert_eq!(total, 2 << 20);
        assert_eq!(value_memory().stored < 1 << 20, is_sharing(), "{}", value_memory());
    }
    // In a process of its own, in which no other test has values.
    Process::spawn(multiply, ()).wait().unwrap();
}

/// Fails at a number, and ends its process at another one, if nothing is at the path.
fn step((number, before): (u64, u64), fails: u64, path: String) -> Result<(u64, u64), String> {
    assert_eq!(number, before);
    if number == 25 && std::fs::File::create_new(path).is_ok() {
        std::process::abort();
    }
    if number == fails { Err("no more".into()) } else { Ok((number + 1, before + 1)) }
}

#[test]
fn a_chain_goes_on_behind_a_death_and_ends_where_a_task_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("died").display().to_string();
    let pool = pool(2);
    for fails in [1000, 40] {
        let mut outputs = vec![pool.put((0_u64, 0_u64)).unwrap()];
        for number in 0..100 {
            let before = outputs[number].clone();
            outputs.push(pool.try_apply(step, (before, fails, path.clone())).output());
        }
        for (number, output) in (0..).zip(&outputs) {
            match output.get().wait() {
                Ok(value) => assert_eq!(value, (number, number)),
                Err(Error::Task { function, .. }) => {
                    assert!(function.ends_with("step") && number == fails + 1, "{number}");
                }
                Err(Error::InputFailed { cause, .. }) => {
                    assert!(number > fails + 1 && cause.to_string().contains("no more"), "{cause}");
                }
                Err(other) => panic!("{number}: {other}"),
            }
        }
        let last = outputs[100].get().wait();
        assert_eq!(last.is_ok(), fails == 1000, "{last:?}");
    }
}

#[test]
fn tasks_that_only_a_dropped_output_needs_never_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let pool = pool(1);
    let gate = Event::new().unwrap();
    let busy = pool.apply(|gate: Event| gate.wait_set().wait().unwrap(), gate.clone()).output();
    let touch = |path: String, x: u64, (): ()| std::fs::write(format!("{path}/{x}"), "").unwrap();
    let kept = pool.apply(touch, (path.clone(), 100, busy.clone())).output();
    let mut last = busy.clone();
    for x in 0..20 {
        last = pool.apply(touch, (path.clone(), x, last)).output();
    }
    drop((last, busy));
    gate.set().wait().unwrap();
    kept.get().wait().unwrap();
    pool.stop().wait().unwrap();
    let names = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["100"]);
}

#[test]
fn tasks_that_wait_for_inputs_are_counted() {
    let pool = pool(1);
    let queue = Queue::<u32>::new().unwrap();
    let first = pool.apply(|queue: Queue<u32>| queue.get().wait().unwrap(), queue.clone()).output();
    let items: Vec<_> = (0..5).map(|x| (first.clone(), x)).collect();
    let sums = pool.map(|first: u32, x: u32| first + x, items).outputs();
    let wide = |first: u32, sums: Vec<u32>, last: u32| first + sums.len() as u32 + last;
    let all = pool.apply(wide, (first, sums.clone(), sums[4].clone())).output();
    wait_until("tasks that wait", || pool.stats().tasks.held == 6);
    let waits: Vec<_> = pool
        .stats()
        .calls
        .into_iter()
        .map(|call| (call.function, call.held, call.waits_for))
        .collect();
    let [(first, 0, nothing), (second, 5, one), (_, 1, two)] = &waits[..] else {
        panic!("{waits:?}");
    };
    // The third waits for six values of the second call, and for one of the first.
    assert_eq!(
        (&**nothing, one, two),
        (&[][..], &vec![first.clone()], &vec![second.clone(), first.clone()])
    );
    queue.put(7).wait().unwrap();
    assert!(sums.iter().all(|sum| sum.get().wait().is_ok()));
    assert_eq!(all.get().wait().unwrap(), 7 + 5 + 11);
    assert_eq!(pool.stats().tasks.held, 0);
}

#[test]
fn a_failed_input_fails_all_that_depend_on_it_and_names_the_ancestor() {
    let pool = pool(2);
    let failed = pool.try_map(fail, ["no rain".to_string()]).outputs();
    let child = pool.apply(add, (failed[0].clone(), 1)).output();
    let other = pool.apply(square, 3).output();
    let grandchild = pool.apply(add, (other.clone(), child.clone()));
    let text = grandchild.wait().unwrap_err().to_string();
    for part in ["::add`) did not run, because an input failed: task 0", "::fail`)", "no rain"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(text.matches("did not run").count(), 1, "{text}");
    assert!(matches!(failed[0].get().wait(), Err(Error::Task { index: 0, .. })));
    let problem = child.get().wait().unwrap_err();
    let Error::InputFailed { cause, .. } = &problem else { panic!("{problem}") };
    assert!(matches!(**cause, Error::Task { .. }));
    assert_eq!(other.get().wait().unwrap(), 9);
    // The others of a map are not concerned.
    let items = [(failed[0].clone(), 1), (other, 1)];
    let results: Vec<_> = pool.imap(add, items).wait().collect();
    assert!(matches!(results[0], Err(Error::InputFailed { index: 0, .. })), "{results:?}");
    assert_eq!(*results[1].as_ref().unwrap(), 10);
}

#[test]
fn outputs_of_an_ended_pool_fail() {
    let pool = pool(1);
    let never = pool.apply(pid_after, 60_000).output();
    let behind = pool.apply(|pid: u32| pid, never.clone()).output();
    drop(pool);
    assert!(matches!(never.get().wait(), Err(Error::PoolEnded { .. })));
    assert!(behind.get().wait().is_err());
}

/// An iterator that says more than it gives.
struct Boaster(u64);

impl Iterator for Boaster {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0 as usize + 1, Some(self.0 as usize + 1))
    }
}

#[test]
fn an_output_without_an_item_fails() {
    let pool = pool(1);
    let outputs = pool.map(square, Boaster(2)).outputs();
    assert_eq!(outputs[0].get().wait().unwrap(), 1);
    let text = outputs[2].get().wait().unwrap_err().to_string();
    assert!(text.contains("fewer items than its `size_hint` said"), "{text}");
}

#[test]
fn outcomes_of_many_calls_come_in_their_order() {
    let pool = pool(2);
    const CALLS: usize = 20_000;
    let calls: Vec<_> = (0..CALLS as u64).map(|x| pool.apply(square, x)).collect();
    let mut is_there = vec![false; CALLS];
    for (place, outcome) in as_completed(calls).wait() {
        assert_eq!(outcome.unwrap(), (place * place) as u64);
        assert!(!std::mem::replace(&mut is_there[place], true), "outcome {place} comes twice");
    }
    assert!(is_there.into_iter().all(|is_there| is_there));
    let outputs = pool.map(square, 0..3).outputs();
    let squares: Result<Vec<_>, _> =
        as_completed(outputs).wait().map(|(place, x)| x.map(|x| (place, x))).collect();
    assert_eq!(squares.unwrap().into_iter().map(|(_, x)| x).sum::<u64>(), 5);
    assert_eq!(as_completed(Vec::<Output<u64>>::new()).wait().count(), 0);
}

#[test]
fn the_first_outcome_drops_the_other_calls() {
    let pool = pool(2);
    let calls = [60_000, 1].map(|ms| pool.apply(pid_after, ms));
    assert_eq!(first(calls).wait().unwrap().0, 1);
    let failed = pool.try_apply(fail, "first".to_string());
    assert!(first([failed]).wait().unwrap_err().to_string().contains("first"));
    let none = first(Vec::<Output<u64>>::new()).wait().unwrap_err().to_string();
    assert!(none.contains("there is no call"), "{none}");
}

#[test]
fn outputs_come_as_results_do() {
    let pool = pool(2);
    let fail_at_3 = |x: u64| if x == 3 { Err("three") } else { Ok(x * x) };
    let squares = pool.try_imap(fail_at_3, 0..5).outputs();
    let squares: Vec<_> =
        squares.into_iter().inspect(|output| assert!(output.is_ready())).collect();
    assert!(squares[3].get().wait().unwrap_err().to_string().contains("three"));
    assert_eq!(pool.apply(add, (squares[4].clone(), squares[2].clone())).wait().unwrap(), 20);
    let problem = pool.apply(square, squares[3].clone()).wait().unwrap_err();
    assert!(matches!(problem, Error::InputFailed { .. }), "{problem}");
    let unordered = pool.imap_unordered(square, 0..100).outputs().wait();
    let sum: u64 = unordered.map(|output| output.get().wait().unwrap()).sum();
    assert_eq!(sum, (0..100).map(|x| x * x).sum::<u64>());
    // Results that were taken before are not among them, and all others are.
    for count in [1, 7, 50, 100] {
        let mut call = pool.imap(square, 0..100);
        assert_eq!((&mut call).into_iter().take(count).count(), count);
        let rest: Vec<_> =
            call.outputs().wait().map(|output| output.get().wait().unwrap()).collect();
        assert!(rest.into_iter().eq((count as u64..100).map(|x| x * x)), "{count}");
    }
}

#[test]
fn an_error_of_the_call_is_the_last_output() {
    let pool = pool(1);
    let panics = (0..3).filter(|x: &u64| if *x == 2 { panic!("no more") } else { true });
    let last = pool.imap(square, panics).outputs().wait().last().unwrap();
    assert!(last.get().wait().unwrap_err().to_string().contains("no more"));
    pool.kill();
    let ended: Vec<_> = pool.imap_unordered(square, 0..3).outputs().into_iter().collect();
    assert_eq!(ended.len(), 1);
    assert!(matches!(ended[0].get().wait(), Err(Error::PoolEnded { .. })));
}

#[tokio::test]
async fn outputs_of_a_call_are_a_stream() {
    use futures_util::StreamExt;
    let pool = pool(1);
    let mut squares = pool.imap(square, 0..).outputs();
    for x in 0..10 {
        let output = squares.next().await.unwrap();
        assert_eq!(pool.apply(add, (output, 1)).await.unwrap(), x * x + 1);
    }
}
