//! A task's value for which shared memory has no room is in a file that links lend. This is a
//! process of its own, because its limits and its folder are changed.

use fiber_core::value_memory::{set_limit, value_memory};
use fiber_values::blob::{Blobs, MIN_LEN, arena};
use fiber_values::codec::{self, EncodedValue};
use fiber_values::{Array, spill};

type Value = (Array<u64>, Vec<Option<String>>);

fn value() -> Value {
    (vec![7; MIN_LEN].into(), vec![Some("x".repeat(MIN_LEN / 2)); 3])
}

/// Encodes a value as a worker does: another one each time, which has no copy yet.
fn encoded() -> EncodedValue {
    let mut bytes = Vec::new();
    let mut blobs = codec::append_apart(&mut bytes, &value()).unwrap();
    spill::spill_for_others(&mut bytes, &mut blobs);
    EncodedValue { bytes: bytes.into(), blobs }
}

fn is_lent(blobs: &Blobs) -> bool {
    blobs.iter().all(|blob| blob.as_shared().is_some())
}

#[test]
fn what_has_no_room_goes_to_a_file_that_is_lent() {
    set_limit(16 * MIN_LEN as u64);
    let private = encoded();
    assert!(private.blobs[0].as_shared().is_none(), "this process lends nothing");
    arena::enable(true);
    let shared = encoded();
    assert_eq!((is_lent(&shared.blobs), value_memory().spilled), (true, 0), "there is room");
    assert!(shared.bytes.len() > MIN_LEN, "only what is long in a row is in shared memory");

    let rest = arena::copy_of(&vec![0; 8 * MIN_LEN]).expect("there is room");
    let beyond = encoded();
    assert!(is_lent(&beyond.blobs));
    assert_eq!(value_memory().spilled, beyond.blobs.total_len() as u64);
    assert_eq!((beyond.bytes.len(), beyond.blobs.len()), (1, 2), "its encoding is there, too");
    assert_eq!(beyond.decode::<Value>().unwrap(), value());
    drop(beyond);
    assert_eq!(value_memory().spilled, 0);

    // Without a file, the value is as it would be without all this, and nothing is left.
    spill::set_folder(Some("/proc/no-folder".into()));
    let inside = encoded();
    assert_eq!((is_lent(&inside.blobs), value_memory().spilled), (false, 0));
    assert_eq!(inside.decode::<Value>().unwrap(), value());
    assert!(!spill::is_possible());
    drop((shared, rest));
    assert_eq!(value_memory().shared, 0);
}
