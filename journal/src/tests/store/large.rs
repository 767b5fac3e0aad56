//! Large values, and many of them.

use super::open;
use crate::format::Limits;
use crate::tests::closure::{label, recorded};
use crate::{OutcomeKind, TaskKey};

#[test]
fn a_value_that_is_longer_than_a_segment_is_recorded_and_read() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    let call = store.call(&label("#0"));
    let key = store.keys(call).key(b"", std::iter::empty());
    let value: Vec<u8> = (0..80_u8).map(|n| vec![n; 1 << 20]).collect::<Vec<_>>().concat();
    assert!(value.len() as u64 > Limits::default().outcomes);
    let copy = value.clone();
    recorded(&store, move |recorder| {
        recorder.outcome(call, key, 0, OutcomeKind::Returned, b"small", &[&copy]);
        recorder.put("actor/a", 0, &copy, &[]);
    });
    // Another one, so that the large one is in a sealed segment.
    recorded(&store, move |recorder| recorder.put("actor/a", 1, b"small", &[]));
    drop(store);
    let store = open(folder.path());
    let outcome = store.take(key, false).expect("it can be read").expect("it is recorded");
    assert!(outcome.bytes == b"small"[..] && outcome.blobs[0] == value);
    let slots = store.slots("actor/a").expect("it can be read");
    assert!(slots[0].1 == value && slots[1].1 == b"small"[..]);
}

#[test]
fn many_outcomes_are_found_again() {
    const COUNT: u32 = 200_000;
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    let call = store.call(&label("#0"));
    let key = move |n: u32| {
        let mut key = TaskKey([0; 16]);
        // Keys are hashes: a bijection that spreads the numbers is as good.
        let spread = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        key.0[..8].copy_from_slice(&spread.to_be_bytes());
        key
    };
    for start in (0..COUNT).step_by(10_000) {
        recorded(&store, move |recorder| {
            for n in start..start + 10_000 {
                let value = n.to_le_bytes();
                recorder.outcome(call, key(n), n.into(), OutcomeKind::Returned, &value, &[]);
            }
        });
    }
    drop(store);
    let store = open(folder.path());
    for n in 0..COUNT {
        let outcome = store.take(key(n), false).expect("it can be read");
        assert_eq!(outcome.expect("it is recorded").bytes[..], n.to_le_bytes());
    }
    assert_eq!(store.take(key(COUNT), false).expect("it can be read"), None);
}
