//! Models of code that several threads run, on loom: it tries all orders of their steps.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;

/// Stands in for the locks of fiber.
mod sync {
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

#[path = "../src/blob/allocator.rs"]
mod allocator;
#[path = "../src/blob/ranges.rs"]
mod ranges;

use allocator::{Allocator, Pages};
use ranges::{PAGE, Ranges};

/// The states of a page that the model observes.
#[derive(Default)]
struct Page {
    is_there: AtomicBool,
    is_used: AtomicBool,
}

/// Memory that notices when two threads use a page, or one uses a page that the system has.
struct Memory(Vec<Page>);

impl Memory {
    fn new(pages: usize) -> Memory {
        Memory((0..pages).map(|_| Page::default()).collect())
    }

    fn pages(&self, start: usize, len: usize) -> &[Page] {
        &self.0[start / PAGE..(start + len) / PAGE]
    }

    fn use_pages(&self, start: usize, len: usize) {
        for page in self.pages(start, len) {
            assert!(page.is_there.load(Relaxed), "the system has the page");
            assert!(!page.is_used.swap(true, Relaxed), "another thread uses the page");
        }
        self.pages(start, len).iter().for_each(|page| page.is_used.store(false, Relaxed));
    }
}

impl Pages for Arc<Memory> {
    fn provide(&self, start: usize, len: usize) -> bool {
        self.pages(start, len).iter().for_each(|page| page.is_there.store(true, Relaxed));
        true
    }

    fn give_back(&self, start: usize, len: usize) -> bool {
        for page in self.pages(start, len) {
            assert!(!page.is_used.load(Relaxed), "a thread uses the page");
            page.is_there.store(false, Relaxed);
        }
        true
    }
}

#[test]
fn a_range_has_its_pages_and_one_taker() {
    loom::model(|| {
        let memory = Arc::new(Memory::new(8));
        let ranges = Ranges::new(8 * PAGE);
        let arena = Arc::new(Allocator::new(ranges, Arc::clone(&memory), || PAGE));
        let threads = [3, 2].map(|pages| {
            let (arena, memory) = (Arc::clone(&arena), Arc::clone(&memory));
            thread::spawn(move || {
                for len in [pages * PAGE, PAGE] {
                    let offset = arena.take(len).expect("there is room for all");
                    memory.use_pages(offset, len);
                    assert!(arena.are_taken(offset, len));
                    arena.free(offset, len);
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        arena.give_back();
        assert_eq!(arena.take(8 * PAGE), Some(0), "all memory came back");
    });
}
