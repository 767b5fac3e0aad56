use std::path::PathBuf;
use std::sync::Arc;

use super::*;

const LIMIT: u64 = 64 << 10;

/// A file in the temporary directory, which is deleted at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("fiber-{name}-{}.json", std::process::id())))
    }

    fn events(&self) -> Vec<Value> {
        serde_json::from_slice(&std::fs::read(&self.0).unwrap()).unwrap()
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn slice(first: u64, duration: Duration, kind: SliceKind) -> Item {
    let mut slice = Slice::new("p".into(), "worker-1".into(), "a::f".into(), 1, first);
    (slice.start, slice.duration, slice.kind) = (SystemTime::now(), duration, kind);
    Item::Slice(slice)
}

#[test]
fn the_file_is_complete_after_each_write() {
    let place = Place::new("complete");
    let mut file = TimelineFile::create(&place.0, LIMIT, SystemTime::now()).unwrap();
    assert_eq!(place.events().len(), 0);
    for first in 0..3 {
        file.add(&slice(first, SLOW, SliceKind::Ran));
        file.write().unwrap();
        let slices = place.events().into_iter().filter(|event| event["ph"] == "X").count();
        assert_eq!(slices as u64, first + 1);
    }
}

#[test]
fn the_fuller_the_file_the_fewer_it_takes_and_never_more_than_the_limit() {
    let place = Place::new("limit");
    let mut file = TimelineFile::create(&place.0, LIMIT, SystemTime::now()).unwrap();
    assert_eq!(file.window(), MIN_WINDOW);
    for first in 0..1000 {
        file.add(&slice(first, SLOW / 2, SliceKind::Ran));
        file.write().unwrap();
    }
    assert!(place.length() < LIMIT / 4 * 3 + 1000, "{}", place.length());
    assert_eq!(file.window(), MIN_WINDOW * 256);
    // The rest is for what is slow, dead or redelivered.
    let before = place.length();
    for item in [
        slice(0, SLOW, SliceKind::Ran),
        slice(0, SLOW / 1000, SliceKind::Died),
        slice(0, SLOW / 1000, SliceKind::Redelivered),
    ] {
        file.add(&item);
    }
    file.write().unwrap();
    assert!(place.length() > before);
    let kinds: Vec<_> = place.events().iter().rev().take(3).map(|e| e["cat"].clone()).collect();
    assert_eq!(kinds, ["redelivered", "died", "task"]);
    for first in 0..1000 {
        file.add(&slice(first, SLOW, SliceKind::Died));
        file.write().unwrap();
    }
    assert!(place.length() <= LIMIT);
    assert!(place.events().len() > 3);
}

#[test]
fn calls_at_the_same_time_have_tracks_of_their_own() {
    let place = Place::new("calls");
    let mut file = TimelineFile::create(&place.0, LIMIT, SystemTime::now()).unwrap();
    let at = SystemTime::now();
    let began = |call| Item::CallBegan { at, pool: "p".into(), call, function: "a::f" };
    for item in [began(1), began(2), Item::CallEnded { at, call: 1 }, began(3)] {
        file.add(&item);
    }
    file.write().unwrap();
    let events = place.events();
    let tracks = |ph: &str| {
        let of = events.iter().filter(|event| event["ph"] == ph);
        of.map(|event| event["tid"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(tracks("B"), [0, 1, 0]);
    assert_eq!(tracks("E"), [0]);
}

fn arrow(file: &mut TimelineFile) {
    let end = |worker: &str| End {
        thread: Arc::new(("p".into(), worker.into(), 0)),
        at: SystemTime::now(),
    };
    file.add(&Item::Arrow { from: end("worker-1"), to: end("worker-2") });
}

#[test]
fn arrows_are_pairs_of_ends_with_a_number() {
    let place = Place::new("arrows");
    let mut file = TimelineFile::create(&place.0, LIMIT, SystemTime::now()).unwrap();
    file.add(&slice(0, SLOW, SliceKind::Ran));
    (0..2).for_each(|_| arrow(&mut file));
    file.write().unwrap();
    let events = place.events();
    let of = |ph: &str| {
        let ends = events.iter().filter(|event| event["ph"] == ph);
        ends.map(|event| (event["id"].as_u64(), event["tid"].as_u64())).collect::<Vec<_>>()
    };
    assert_eq!(of("s"), [(Some(1), Some(FIRST_WORKER)), (Some(2), Some(FIRST_WORKER))]);
    assert_eq!(of("f"), [(Some(1), Some(FIRST_WORKER + 1)), (Some(2), Some(FIRST_WORKER + 1))]);
    let track = events.iter().find(|event| event["ph"] == "X").unwrap()["tid"].as_u64();
    assert_eq!(track, Some(FIRST_WORKER), "they end on the tracks of slices");
}

#[test]
fn arrows_leave_the_rest_of_the_file_to_what_is_slow() {
    let place = Place::new("many-arrows");
    let mut file = TimelineFile::create(&place.0, LIMIT, SystemTime::now()).unwrap();
    (0..1000).for_each(|_| arrow(&mut file));
    file.write().unwrap();
    assert!(place.length() < LIMIT / 4 * 3 + 1000, "{}", place.length());
    file.add(&slice(0, SLOW, SliceKind::Died));
    file.write().unwrap();
    assert_eq!(place.events().last().unwrap()["cat"], "died");
    // Each arrow has both ends.
    let count = |ph: &str| place.events().iter().filter(|event| event["ph"] == ph).count();
    assert_eq!(count("s"), count("f"));
}

#[test]
fn functions_are_named_by_the_end_of_their_path() {
    assert_eq!(short("shop::resize"), "resize");
    let closure = short("shop::main::{closure@src/main.rs:12}");
    assert_eq!(closure, "main::{closure@src/main.rs:12}");
    assert_eq!(short("main"), "main");
    assert_eq!(short("shop::all<a::B>"), "shop::all<a::B>");
}
