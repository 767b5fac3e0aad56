//! Iterators that tasks come from.

use crate::{pool, square};

#[test]
fn an_endless_iterator_is_taken_as_results_are() {
    let firsts: Result<Vec<_>, _> = pool(2).imap(square, 0..).wait().take(100_000).collect();
    assert_eq!(firsts.unwrap()[99_999], 99_999 * 99_999);
}

#[test]
fn an_iterator_that_waits_for_results_is_fed() {
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
fn a_panicking_iterator_ends_the_call_with_its_words() {
    let items = (0..100u64).inspect(|x| assert!(*x < 50, "no more items"));
    let error = pool(1).map(square, items).wait().unwrap_err().to_string();
    assert!(error.contains("no more items"), "{error}");
}
