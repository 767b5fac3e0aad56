//! Functions that travel as a place in the binary.
//!
//! Every process of a session runs the same build of one program. So a process sends a function as
//! the offset of its [`Entry`], a constant in the program's read-only data, from an anchor in this
//! crate. Programs register nothing.
//!
//! The `unsafe` code that this needs is in this module, but for calls of [`instance`]. It is sound
//! because
//! - entries of tasks are made from values, of function types of size zero (`instance`);
//! - a reference resolves only if it points into read-only memory of the file that holds the
//!   anchor, is aligned, points to the magic value, and names the function that the sender meant.
//!   Read-only data does not change, and processes of different builds do not connect, so each
//!   place with the magic value is an entry;
//! - each type that an entry can call ([`Callable`]) has its own magic value, so entries of
//!   different types can't be confused.

#![allow(unsafe_code)]

mod names;

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::run::Tasks;
use fiber_core::BuildId;
use fiber_core::shortage;
use fiber_core::{Error, Result};

/// The type of an entry's function for tasks: it decodes arguments, calls the task function and
/// encodes results.
pub type TaskFn = fn(&mut dyn Tasks);

/// The type of an entry's function for anything else. Both ends know the types of the arguments:
/// for example an actor, its context, and a message with the sender of its answer.
pub type MethodFn = fn(&mut dyn Any, &mut dyn Any, &mut dyn Any);

/// A function type that an entry can hold.
pub trait Callable: sealed::Sealed + Copy + fmt::Debug + 'static {
    /// The first eight bytes of each entry of this type.
    #[doc(hidden)]
    const MAGIC: u64;
}

impl Callable for TaskFn {
    const MAGIC: u64 = 0x6669_6265_7220_e417;
}

impl Callable for MethodFn {
    const MAGIC: u64 = 0x6669_6265_7220_e428;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::TaskFn {}
    impl Sealed for super::MethodFn {}
}

/// A function that other processes can call: a constant in the program's read-only data.
#[repr(C)]
pub struct Entry<C: Callable = TaskFn> {
    magic: u64,
    name: fn() -> &'static str,
    call: C,
}

/// Entries are named by their distance from it, which all processes of the binary share.
static ANCHOR: Entry = Entry::new(|| "the anchor", |_| {});

impl<C: Callable> Entry<C> {
    /// Makes an entry that calls `call`. The name is the path of the user's function or type.
    pub const fn new(name: fn() -> &'static str, call: C) -> Entry<C> {
        Entry { magic: C::MAGIC, name, call }
    }

    /// Returns the path of the function, as the compiler names it. It identifies the function in
    /// messages and journals; people read the [`display_name`](Entry::display_name).
    pub fn name(&self) -> &'static str {
        (self.name)()
    }

    /// Returns the function that the entry holds.
    pub fn call(&self) -> C {
        self.call
    }

    /// Returns the reference that travels in place of the function.
    pub fn reference(&'static self) -> EntryRef {
        thread_local! {
            // Hashing would be the largest cost of a small message, and most messages name the same
            // entry as the one before.
            static LAST: Cell<(usize, EntryRef)> =
                const { Cell::new((0, EntryRef { offset: 0, name: 0 })) };
        }
        let here = std::ptr::from_ref(self).expose_provenance();
        let (place, reference) = LAST.get();
        if place == here {
            return reference;
        }
        let offset = (here as u64).wrapping_sub(anchor() as u64);
        let reference = EntryRef { offset, name: hash(self.name()) };
        LAST.set((here, reference));
        reference
    }
}

impl Entry {
    /// Runs all `tasks` through the function.
    pub fn run(&self, tasks: &mut dyn Tasks) {
        (self.call)(tasks);
    }
}

impl<C: Callable> fmt::Debug for Entry<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.name())
    }
}

/// A reference to an [`Entry`]: its place, and the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EntryRef {
    /// The distance from the anchor in bytes, wrapping.
    pub offset: u64,
    /// The first eight bytes of the BLAKE3 hash of the function's name.
    pub name: u64,
}

impl EntryRef {
    /// Returns the entry in this process.
    ///
    /// # Errors
    /// [`Error::UnknownEntry`] if there is no such entry: the sender runs another build, or the
    /// reference is forged.
    pub fn resolve<C: Callable>(self) -> Result<&'static Entry<C>> {
        let unknown = || match BuildId::current() {
            Ok(build) => Error::UnknownEntry { offset: self.offset, build: build.clone() },
            Err(error) => error,
        };
        let address = (anchor() as u64).wrapping_add(self.offset) as usize;
        let end = address.checked_add(size_of::<Entry<C>>()).ok_or_else(unknown)?;
        let readable = read_only()?.iter().any(|range| range.0 <= address && end <= range.1);
        if !readable || !address.is_multiple_of(align_of::<Entry<C>>()) {
            return Err(unknown());
        }
        let place = std::ptr::with_exposed_provenance::<Entry<C>>(address);
        // SAFETY: the range [address, end) lies in read-only data of this program, which stays
        // mapped, and is aligned; any eight bytes are a u64.
        let magic = unsafe { (&raw const (*place).magic).read() };
        if magic != C::MAGIC {
            return Err(unknown());
        }
        // SAFETY: as above, and the magic value shows that an entry is here (see the module's
        // documentation).
        let entry: &'static Entry<C> = unsafe { &*place };
        if hash(entry.name()) == self.name { Ok(entry) } else { Err(unknown()) }
    }
}

/// Returns the only instance of a function type that captures nothing.
///
/// # Safety
/// A process of this build has had a value of the type: the one that was passed to the method which
/// made the entry that calls this. Types of size 0 without any value exist.
///
/// # Panics
/// If the function captures variables. The public methods already refuse that at compile time
/// (`assert_captures_nothing`). A second constant here would repeat their error with a line of
/// fiber's source. The compiler removes this check.
pub unsafe fn instance<F: Copy + Send + 'static>() -> F {
    assert!(size_of::<F>() == 0, "only functions that capture nothing have an entry");
    // SAFETY: reading zero bytes from an aligned, non-null pointer is valid, and F is Copy, so
    // a copy of a value that has existed is a valid value.
    unsafe { NonNull::<F>::dangling().read() }
}

fn anchor() -> usize {
    (&raw const ANCHOR).expose_provenance()
}

fn hash(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("a hash has 32 bytes"))
}

/// Reads the build of this program and the place of its entries. Called at the start, before
/// descriptors can run out.
///
/// # Errors
/// [`Error::System`] if the system refuses a file.
pub fn prepare() -> Result<()> {
    BuildId::current()?;
    read_only().map(drop)
}

/// Returns the address ranges of the read-only data of the file that holds the anchor. The next
/// call retries after a failure, which may be a passing shortage.
fn read_only() -> Result<&'static [(usize, usize)]> {
    static RANGES: OnceLock<Vec<(usize, usize)>> = OnceLock::new();
    if let Some(known) = RANGES.get() {
        return Ok(known);
    }
    let refused = |problem: String| {
        Error::system("this program's functions can't be found in its memory", problem)
    };
    let maps = fiber_core::read_lossy("/proc/self/maps");
    let maps =
        maps.map_err(|error| refused(format!("/proc/self/maps: {}", shortage::explain(&error))))?;
    let mappings: Vec<_> = maps.lines().filter_map(Mapping::parse).collect();
    let home = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&anchor()));
    let home = home.ok_or_else(|| refused("/proc/self/maps does not list them".into()))?;
    let ours = |mapping: &&Mapping<'_>| mapping.file == home.file && mapping.permissions == "r--p";
    let ranges = mappings.iter().filter(ours).map(|mapping| (mapping.start, mapping.end)).collect();
    Ok(RANGES.get_or_init(|| ranges))
}

/// A line of `/proc/self/maps`.
struct Mapping<'a> {
    start: usize,
    end: usize,
    permissions: &'a str,
    /// Device and inode.
    file: (&'a str, &'a str),
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?;
        let (_offset, device, inode) = (fields.next()?, fields.next()?, fields.next()?);
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: number(start)?,
            end: number(end)?,
            permissions,
            file: (device, inode),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::function::{OneArgument, TypedEntry};
    use crate::task_output::{AsValue, Plain, TaskOutput};

    fn double(x: u32) -> u32 {
        2 * x
    }

    fn entry_of<F>(function: F) -> &'static Entry
    where
        F: crate::Function<u32, OneArgument<u32>, Output: TaskOutput<Plain>>,
    {
        TypedEntry::of::<F, _, AsValue<Plain>>(function).entry
    }

    #[test]
    fn a_reference_resolves_to_its_entry() {
        for entry in [entry_of(double), entry_of(|x| x + 1)] {
            let resolved = entry.reference().resolve::<TaskFn>().unwrap();
            assert_eq!(resolved.name(), entry.name());
        }
    }

    #[test]
    fn an_entry_is_not_taken_for_one_of_another_type() {
        let refused = entry_of(double).reference().resolve::<MethodFn>();
        assert!(matches!(refused, Err(Error::UnknownEntry { .. })));
    }

    #[test]
    fn a_reference_with_another_name_is_refused() {
        let reference = EntryRef { name: 7, ..entry_of(double).reference() };
        assert!(matches!(reference.resolve::<TaskFn>(), Err(Error::UnknownEntry { .. })));
    }

    proptest! {
        #[test]
        fn no_other_offset_resolves(
            offset in any::<u64>(),
            near in -1_000_000i64..1_000_000,
            name: u64,
        ) {
            for offset in [offset, near as u64] {
                let resolved = EntryRef { offset, name }.resolve::<TaskFn>();
                prop_assert!(resolved.is_err());
            }
        }
    }
}
