//! Iterators as the source of tasks, and handles as iterators.

use super::{pool, square};

#[test]
fn an_endless_iterator_is_consumed_as_results_are_taken() {
    let firsts: Result<Vec<_>, _> = pool(2).imap(square, 0..).wait().take(100_000).collect();
    assert_eq!(firsts.unwrap()[99_999], 99_999 * 99_999);
}

#[test]
fn handles_are_blocking_iterators() {
    let pool = pool(2);
    let mut squares = Vec::new();
    for square in pool.imap(square, 0..100) {
        squares.push(square.unwrap());
    }
    assert!(squares.into_iter().eq((0..100).map(|x| x * x)));
    let mut sum = 0;
    for square in pool.imap_unordered(square, 0..100) {
        sum += square.unwrap();
    }
    assert_eq!(sum, (0..100).map(|x| x * x).sum::<u64>());
    let queue = fiber::Queue::new().unwrap();
    (0..3).for_each(|x| drop(queue.put(x)));
    queue.close().wait().unwrap();
    let mut elements = Vec::new();
    for element in queue.stream() {
        elements.push(element.unwrap());
    }
    assert_eq!(elements, [0, 1, 2]);
    // A loop over a reference leaves the handle for the rest.
    let mut rest = pool.try_imap(|x: u32| if x == 1 { Err("one") } else { Ok(x) }, 0..4);
    for result in &mut rest {
        if result.is_err() {
            break;
        }
    }
    let rest: Vec<_> = rest.into_iter().map(|result| result.map_err(drop)).collect();
    assert_eq!(rest, [Ok(2), Ok(3)]);
}

#[test]
fn an_iterator_may_wait_for_results() {
    // The next item depends on the last result.
    let (next, items) = std::sync::mpsc::channel();
    next.send(1u64).unwrap();
    let mut last = 0;
    for result in pool(2).imap(|x: u64| x + 1, items).wait() {
        last = result.unwrap();
        if last == 50 {
            break;
        }
        next.send(last).unwrap();
    }
    assert_eq!(last, 50);
}

#[test]
fn a_panicking_iterator_ends_the_call_with_its_message() {
    let items = (0..100u64).inspect(|x| assert!(*x < 50, "no more items"));
    let error = pool(1).map(square, items).wait().unwrap_err().to_string();
    assert!(error.contains("no more items"), "{error}");
}
