use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use tokio::sync::watch;

use super::*;
use crate::simulation::Fragile;

/// A world of which only the numbers that it draws matter.
#[derive(Default)]
struct Numbers {
    last: AtomicU64,
    is_dead: AtomicBool,
    is_unusual: AtomicBool,
}

impl World for Numbers {
    fn begin_node(&self, _: &str) -> u64 {
        0
    }

    fn end_node(&self, _: u64) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    fn has_died(&self, _: &Waker) -> bool {
        self.is_dead()
    }

    fn disk(&self) -> Arc<Disk> {
        Arc::default()
    }

    fn sigterms(&self) -> watch::Receiver<()> {
        watch::Sender::new(()).subscribe()
    }

    fn terminate(&self, _: u64) -> bool {
        false
    }

    fn exit(&self) {}

    fn add(&self, _: Arc<dyn Fragile>) {}

    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    fn is_unusual(&self, _: &'static str) -> bool {
        self.is_unusual.load(Ordering::Relaxed)
    }

    fn draw(&self, end: u64) -> u64 {
        let hash = blake3::hash(&self.last.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let number = hash.as_bytes()[..8].try_into().expect("there are 32");
        u64::from_le_bytes(number) % end.max(1)
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.draw(256) as u8);
    }
}

#[test]
fn a_power_loss_leaves_what_was_synced_and_any_part_of_the_rest() {
    let world = Numbers::default();
    let mut lengths = std::collections::BTreeSet::new();
    let (mut has_kept, mut has_lost) = (false, false);
    for _ in 0..50 {
        let folder = tempfile::tempdir().expect("there is room");
        let (disk, folder) = (Disk::default(), folder.path());
        let (named, unnamed) = (folder.join("named"), folder.join("unnamed"));
        let file = disk.create(&world, &named).expect("there is room");
        disk.write_all_at(&world, &file, [b"on ", b"disk"], 0).expect("there is room");
        disk.sync(&world, &file).expect("it does not fail");
        disk.sync_folder(&world, folder).expect("it does not fail");
        disk.write_all_at(&world, &file, [b", and in memory", &[]], 7).expect("there is room");
        disk.create(&world, &unnamed).expect("there is room");
        disk.lose_power(&world).expect("the files can be changed");
        let left = fs::read(&named).expect("its name is durable");
        assert!(left.starts_with(b"on disk"), "{left:?}");
        lengths.insert(left.len());
        has_kept |= unnamed.exists();
        has_lost |= !unnamed.exists();
    }
    assert!(has_kept && has_lost && lengths.len() > 2, "{has_kept} {has_lost} {lengths:?}");
}

#[test]
fn a_dead_process_changes_nothing() {
    let world = Numbers::default();
    let folder = tempfile::tempdir().expect("there is room");
    let (disk, path) = (Disk::default(), folder.path().join("file"));
    let file = disk.create(&world, &path).expect("there is room");
    world.end_node(0);
    assert!(disk.write_all_at(&world, &file, [b"late", &[]], 0).is_err());
    assert!(disk.sync(&world, &file).is_err() && disk.remove_file(&world, &path).is_err());
    assert_eq!(fs::read(&path).expect("it is there"), b"");
    disk.lose_power(&world).expect("the files can be changed");
}

#[test]
fn readers_of_a_settled_file_see_what_the_disk_has() {
    let world = Numbers::default();
    let mut has_seen_more = false;
    for _ in 0..50 {
        let folder = tempfile::tempdir().expect("there is room");
        let (disk, path) = (Disk::default(), folder.path().join("file"));
        let file = disk.create(&world, &path).expect("there is room");
        disk.write_all_at(&world, &file, [b"lost", &[]], 0).expect("there is room");
        world.is_unusual.store(true, Ordering::Relaxed);
        let has_failed = disk.sync(&world, &file).is_err();
        world.is_unusual.store(false, Ordering::Relaxed);
        // The second sync does not write again what the failed one has lost.
        disk.sync(&world, &file).expect("it does not fail");
        let before = fs::read(&path).expect("it is there");
        disk.settle(&world, &file).expect("it does not fail");
        let after = fs::read(&path).expect("it is there");
        has_seen_more |= before == b"lost" && after.is_empty();
        assert!(has_failed || after == b"lost", "{after:?}");
    }
    assert!(has_seen_more);
}
