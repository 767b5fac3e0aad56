//! Ranks that make different calls.

use std::time::Duration;

use fiber::{Error, Reduction, Ring, RingNode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the error text of a ring whose ranks make different calls.
fn disagreement<A: Serialize + DeserializeOwned, M, N>(
    size: usize,
    function: impl fiber::ring::RingFunction<A, M, Output: fiber::task::TryOutput<N>>,
    args: A,
) -> String
where
    N: 'static,
{
    let ring = Ring::builder().name("odd").size(size).timeout(Duration::from_secs(5));
    match ring.try_run(function, args).wait().map(drop) {
        Err(error @ Error::Ring { .. }) => error.to_string(),
        other => panic!("not an `Error::Ring`: {other:?}"),
    }
}

#[test]
fn different_lengths_are_an_error_that_names_ranks_and_operation() {
    for base in [4, 100_000] {
        let text = disagreement(
            3,
            |mut node: RingNode, base: usize| {
                let mut data = vec![0.0f64; base + usize::from(node.rank() == 1)];
                node.all_reduce(&mut data, Reduction::Max)
            },
            base,
        );
        assert!(text.contains("all_reduce (max) of") && text.contains("rank 1"), "{text}");
        assert!(
            text.contains(&format!("{base} f64")) && text.contains(&format!("{} f64", base + 1)),
            "{text}"
        );
    }
}

#[test]
fn different_operations_types_and_reductions_are_errors_that_name_them() {
    let text = disagreement(
        2,
        |mut node: RingNode| match node.rank() {
            0 => node.all_reduce(&mut [1i32], Reduction::Sum),
            _ => node.barrier(),
        },
        (),
    );
    assert!(text.contains("all_reduce (sum) of 1 i32") && text.contains("barrier"), "{text}");
    let text = disagreement(
        2,
        |mut node: RingNode| match node.rank() {
            0 => node.all_reduce(&mut [1i32; 2], Reduction::Sum),
            _ => node.all_reduce(&mut [1i64], Reduction::Product),
        },
        (),
    );
    assert!(text.contains("(sum) of 2 i32") && text.contains("(product) of 1 i64"), "{text}");
}

#[test]
fn after_the_timeout_the_error_names_the_rank_that_did_not_join() {
    let text = disagreement(
        3,
        |mut node: RingNode| {
            if node.rank() == 2 {
                // The ring kills it.
                fiber_test_support::hang()
            }
            node.all_reduce(&mut [1.0f32; 8], Reduction::Sum)
        },
        (),
    );
    assert!(
        text.contains("all_reduce (sum) of 8 f32") && text.contains("rank 2 is in its own code"),
        "{text}"
    );
    assert!(text.contains("ranks 0 and 1 are in"), "{text}");
}

#[test]
fn waiting_for_a_rank_whose_function_has_returned_fails_before_the_timeout() {
    let ring = Ring::builder().size(2).try_run(
        |mut node: RingNode| {
            node.barrier()?;
            match node.rank() {
                0 => Ok(()),
                _ => node.recv::<()>(0),
            }
        },
        (),
    );
    let text = ring.wait().unwrap_err().to_string();
    assert!(text.contains("the function of rank 0 has returned"), "{text}");
}
