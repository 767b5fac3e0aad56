//! Slots that are written again and again take no more room.

use std::fs;
use std::path::Path;

use super::closure::{LIMITS, open, recorded};

fn size(path: &Path) -> u64 {
    let files = fs::read_dir(path).expect("it exists");
    files.map(|file| file.expect("it can be listed").metadata().expect("it is there").len()).sum()
}

#[test]
fn superseded_values_are_removed_while_the_store_is_open() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    // Some stay as they are, in the first segments.
    recorded(&store, |recorder| {
        for slot in 0..10 {
            recorder.put("ring/r/0", slot, &[slot as u8; 100], &[b"blob"]);
        }
        recorder.put("queue/gone", 1, &[1; 100], &[]);
    });
    recorded(&store, |recorder| recorder.remove("queue/gone", 1));
    let mut largest = 0;
    for n in 0..200u8 {
        recorded(&store, move |recorder| {
            recorder.put("actor/a", 0, &[n; 300], &[]);
            recorder.put("queue/q", n.into(), &[n; 100], &[]);
            if n > 0 {
                recorder.remove("queue/q", u64::from(n) - 1);
            }
        });
        largest = largest.max(size(folder.path()));
    }
    assert!(largest < 2 * 2500 + LIMITS.superseded + 2 * LIMITS.slots, "{largest} bytes");
    drop(store);
    let store = open(folder.path());
    let slots = |name| store.slots(name).expect("it can be read");
    assert_eq!(slots("actor/a"), [(0, vec![199; 300].into(), vec![])]);
    assert_eq!(slots("queue/q"), [(199, vec![199; 100].into(), vec![])]);
    assert_eq!(slots("queue/gone"), []);
    let blob = || vec![b"blob"[..].into()];
    let ring = (0..10).map(|slot| (slot, vec![slot as u8; 100].into(), blob()));
    assert_eq!(slots("ring/r/0"), ring.collect::<Vec<_>>());
}
