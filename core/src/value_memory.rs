//! The memory that values take in this process between their encoding and their decoding.
//!
//! Two counts share one limit, the option `value_memory`: bytes of encoded values that are *stored*
//! here, and bytes of arrays that this process has written to *shared* memory. Each byte is counted
//! once, by the process that has to free it: an array that another process lends counts there.
//!
//! Nothing fails at the limit. Pools hand out no more tasks than they have workers, elements of
//! queues and outputs of tasks go to a file, and new arrays stay outside of shared memory, until
//! values are gone.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use bytes::Bytes;
use bytesize::ByteSize;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::control_groups;

// They count the memory of the process, whichever session its values are of.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
static STORED: AtomicU64 = AtomicU64::new(0);
static SHARED: AtomicU64 = AtomicU64::new(0);
static SPILLED: AtomicU64 = AtomicU64::new(0);
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);
static OUTPUTS: AtomicU64 = AtomicU64::new(0);
/// Wakes those that wait for room.
static ROOM: Notify = Notify::const_new();
static AWAITED: AtomicBool = AtomicBool::new(false);

/// The memory that values take in a process. `Display` shows it in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ValueMemory {
    /// Bytes of encoded arguments, results and elements of queues that the process stores.
    pub stored: u64,
    /// Bytes of arrays that the process has written to shared memory.
    pub shared: u64,
    /// The limit of both together: the option `value_memory`.
    pub limit: u64,
    /// Bytes of elements of queues and outputs of tasks that are in a file, because there was no
    /// room. They do not count towards the limit.
    #[serde(default)]
    pub spilled: u64,
    /// Bytes of outputs of tasks that are on other machines alone. They do not count towards the
    /// limit.
    #[serde(default)]
    pub elsewhere: u64,
    /// How many outputs of tasks the process has, wherever their bytes are.
    #[serde(default)]
    pub outputs: u64,
}

impl fmt::Display for ValueMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| ByteSize(bytes).display().iec();
        let (stored, shared, limit) = (size(self.stored), size(self.shared), size(self.limit));
        write!(f, "values: {stored} stored, {shared} shared, limit {limit}")?;
        if self.spilled > 0 {
            write!(f, ", {} in a file", size(self.spilled))?;
        }
        if self.elsewhere > 0 {
            write!(f, ", {} on other machines", size(self.elsewhere))?;
        }
        match self.outputs {
            0 => Ok(()),
            1 => f.write_str(", 1 output"),
            outputs => write!(f, ", {outputs} outputs"),
        }
    }
}

/// Returns the memory that values take in this process.
///
/// # Examples
/// ```
/// # use fiber_core as fiber;
/// let memory = fiber::value_memory();
/// println!("{memory}"); // values: 1.5 MiB stored, 64.0 MiB shared, limit 11.7 GiB
/// assert!(memory.limit > 0);
/// ```
pub fn value_memory() -> ValueMemory {
    ValueMemory {
        stored: STORED.load(Relaxed),
        shared: SHARED.load(Relaxed),
        limit: LIMIT.load(Relaxed),
        spilled: SPILLED.load(Relaxed),
        elsewhere: ELSEWHERE.load(Relaxed),
        outputs: OUTPUTS.load(Relaxed),
    }
}

/// Sets the limit in bytes.
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Relaxed);
}

/// Returns half of the memory that this process can have: of the host's, of what its control groups
/// allow, or of its own limit, whichever is the least.
pub fn default_limit() -> u64 {
    let host = rustix::system::sysinfo();
    let host = (host.totalram as u64).saturating_mul(host.mem_unit.into());
    let own = [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current);
    let least = own.into_iter().chain([control_groups::memory_limit()]).flatten().min();
    host.min(least.unwrap_or(u64::MAX)) / 2
}

/// Returns whether values take as much memory as they may.
#[inline]
pub fn is_full() -> bool {
    room() == 0
}

/// Returns whether less than a quarter of the memory of values is left, which calls in progress
/// need.
pub fn is_short() -> bool {
    room() < LIMIT.load(Relaxed) / 4
}

/// Returns the limit in bytes.
#[inline]
pub fn limit() -> u64 {
    LIMIT.load(Relaxed)
}

/// Returns how many more bytes values may take.
#[inline]
pub fn room() -> u64 {
    let used = STORED.load(SeqCst).saturating_add(SHARED.load(SeqCst));
    LIMIT.load(Relaxed).saturating_sub(used)
}

/// Counts bytes of shared memory.
pub fn share(bytes: usize) {
    SHARED.fetch_add(bytes as u64, Relaxed);
}

/// Counts bytes of shared memory that are free again.
pub fn unshare(bytes: usize) {
    SHARED.fetch_sub(bytes as u64, SeqCst);
    wake();
}

/// Returns when values take less memory than they may.
pub async fn wait_for_room() {
    while is_full() {
        let mut room = pin!(ROOM.notified());
        room.as_mut().enable();
        AWAITED.store(true, SeqCst);
        // Room that came before is not announced.
        if is_full() {
            room.await;
        }
    }
}

fn wake() {
    if AWAITED.load(SeqCst) && !is_full() && AWAITED.swap(false, SeqCst) {
        ROOM.notify_waiters();
    }
}

/// Returns the same bytes, which count as stored until the last clone or slice is dropped, with
/// `more` bytes that are kept as long.
pub fn stored(bytes: Bytes, more: usize) -> Bytes {
    struct Counted(Bytes, #[expect(dead_code, reason = "it counts until it is dropped")] Stored);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    let counted = Stored::new(bytes.len() + more);
    Bytes::from_owner(Counted(bytes, counted))
}

/// Counts an output of a task until it is dropped.
#[derive(Debug)]
pub struct CountedOutput(());

impl Default for CountedOutput {
    fn default() -> CountedOutput {
        OUTPUTS.fetch_add(1, Relaxed);
        CountedOutput(())
    }
}

impl Drop for CountedOutput {
    fn drop(&mut self) {
        OUTPUTS.fetch_sub(1, Relaxed);
    }
}

/// Counts bytes as stored until it is dropped.
#[derive(Debug, Default)]
pub struct Stored(u64);

impl Stored {
    /// Counts `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Stored {
        STORED.fetch_add(bytes as u64, Relaxed);
        Stored(bytes as u64)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.0 > 0 {
            STORED.fetch_sub(self.0, SeqCst);
            wake();
        }
    }
}

/// Counts bytes on other machines until it is dropped.
#[derive(Debug)]
pub struct StoredElsewhere(u64);

impl StoredElsewhere {
    /// Counts `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> StoredElsewhere {
        ELSEWHERE.fetch_add(bytes as u64, Relaxed);
        StoredElsewhere(bytes as u64)
    }
}

impl Drop for StoredElsewhere {
    fn drop(&mut self) {
        ELSEWHERE.fetch_sub(self.0, Relaxed);
    }
}

/// Counts bytes in a file until it is dropped.
#[derive(Debug)]
pub struct Spilled(u64);

impl Spilled {
    /// Counts `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Spilled {
        SPILLED.fetch_add(bytes as u64, Relaxed);
        Spilled(bytes as u64)
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        SPILLED.fetch_sub(self.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_they_are_dropped() {
        let before = value_memory().stored;
        let counted = Stored::new(1000);
        let mut bytes = stored(Bytes::from_static(b"value"), 95);
        assert_eq!(value_memory().stored, before + 1100);
        drop(counted);
        let part = bytes.split_to(1);
        drop(bytes);
        assert_eq!((value_memory().stored, &part[..]), (before + 100, &b"v"[..]));
        drop(part);
        assert_eq!(value_memory().stored, before);
    }

    #[test]
    fn it_shows_its_bytes_in_units() {
        let (stored, shared, limit) = (1536, 64 << 20, 2 << 30);
        let (spilled, elsewhere, outputs) = (0, 0, 0);
        let mut memory = ValueMemory { stored, shared, limit, spilled, elsewhere, outputs };
        assert_eq!(memory.to_string(), "values: 1.5 KiB stored, 64.0 MiB shared, limit 2.0 GiB");
        memory.spilled = 3 << 20;
        assert!(memory.to_string().ends_with("limit 2.0 GiB, 3.0 MiB in a file"), "{memory}");
        (memory.elsewhere, memory.outputs) = (5 << 20, 2);
        let text = memory.to_string();
        assert!(text.ends_with(" in a file, 5.0 MiB on other machines, 2 outputs"), "{text}");
    }
}
