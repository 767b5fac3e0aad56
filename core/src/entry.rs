//! Code that travels as a place in the binary.
//!
//! Every process of a session runs the same build of one program. So a function can be sent as the
//! offset of its [`Entry`], a constant in the program's read-only data, from an anchor in this
//! crate. Nothing is registered.
//!
//! All `unsafe` that this needs is in this module. What makes it sound:
//! - an entry of a task is only made by this crate, for a function type of size zero (`instance`);
//! - a reference is resolved only if it points into read-only memory of the same file that holds
//!   the anchor, is aligned, carries the magic value, and names the function that the sender meant.
//!   Read-only data of a program does not change, and processes of different builds do not connect, so
//!   what carries the magic value is an entry;
//! - each type of what an entry calls ([`Callable`]) has a magic value of its own, so none is taken
//!   for another.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::build::BuildId;
use crate::error::{Error, Result};
use crate::run::Tasks;
use crate::shortage;

/// Runs tasks through a task function: decodes arguments, calls, encodes results.
pub type TaskFn = fn(&mut dyn Tasks);

/// Does something with values whose types both ends know: an actor and its context, a message, what
/// is to become of the answer.
pub type MethodFn = fn(&mut dyn Any, &mut dyn Any, &mut dyn Any);

/// What an entry can hold.
pub trait Callable: sealed::Sealed + Copy + fmt::Debug + 'static {
    /// Tells entries of this type from all else.
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

/// A function that other nodes may be asked to run.
#[repr(C)]
pub struct Entry<C: Callable = TaskFn> {
    magic: u64,
    name: fn() -> &'static str,
    call: C,
}

static ANCHOR: Entry = Entry::new(|| "the anchor", |_| {});

impl<C: Callable> Entry<C> {
    /// An entry for `call`. The name is that of what it stands for, as the compiler names it.
    pub const fn new(name: fn() -> &'static str, call: C) -> Entry<C> {
        Entry { magic: C::MAGIC, name, call }
    }

    /// The path of the function, as the compiler names it.
    pub fn name(&self) -> &'static str {
        (self.name)()
    }

    /// What it holds.
    pub fn call(&self) -> C {
        self.call
    }

    /// What travels in place of the function.
    pub fn reference(&'static self) -> EntryRef {
        thread_local! {
            // Hashing takes longer than all else in a small message, and most follow one of their
            // kind.
            static LAST: Cell<(usize, EntryRef)> = const { Cell::new((0, EntryRef { offset: 0, name: 0 })) };
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
    /// Runs all of `tasks` through the function.
    pub fn run(&self, tasks: &mut dyn Tasks) {
        (self.call)(tasks);
    }
}

impl<C: Callable> fmt::Debug for Entry<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.name())
    }
}

/// An [`Entry`] of a program, by its place and the hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EntryRef {
    /// Bytes from the anchor, wrapping.
    pub offset: u64,
    /// The first eight bytes of the BLAKE3 hash of the function's name.
    pub name: u64,
}

impl EntryRef {
    /// The entry that this refers to in this process.
    ///
    /// # Errors
    /// [`Error::UnknownEntry`], when there is no such entry: the sender runs another build, or
    /// lies.
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
        // SAFETY: as above, and the magic value says that an entry is here (the module's
        // documentation says why).
        let entry: &'static Entry<C> = unsafe { &*place };
        if hash(entry.name()) == self.name { Ok(entry) } else { Err(unknown()) }
    }
}

/// The instance of a function type that has only one: it captures nothing.
///
/// # Panics
/// If it captures variables. The public methods refuse that when they are compiled
/// (`assert_captures_nothing`); a second constant here would repeat their error with a line of fiber's
/// own. The compiler removes the check where it holds.
pub fn instance<F: Copy + 'static>() -> F {
    assert!(size_of::<F>() == 0, "only functions that capture nothing have an entry");
    // SAFETY: reading zero bytes from an aligned, non-null pointer is valid, and F is Copy, so
    // a copy of a value that exists (an entry is only made from a value of F) is a valid value.
    unsafe { NonNull::<F>::dangling().read() }
}

fn anchor() -> usize {
    (&raw const ANCHOR).expose_provenance()
}

fn hash(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("a hash has 32 bytes"))
}

/// Reads early what this process has to know of its program, so that a shortage of descriptors does
/// not get in the way later: its build, and where its entries are.
///
/// # Errors
/// [`Error::System`], if the system does not say.
pub fn prepare() -> Result<()> {
    BuildId::current()?;
    read_only().map(drop)
}

/// The address ranges of the read-only data of the file that holds the anchor. A failure is not
/// kept: it may pass.
fn read_only() -> Result<&'static [(usize, usize)]> {
    static RANGES: OnceLock<Vec<(usize, usize)>> = OnceLock::new();
    if let Some(known) = RANGES.get() {
        return Ok(known);
    }
    let refused = |problem: String| {
        Error::system("this program's functions can't be found in its memory", problem)
    };
    let maps = std::fs::read_to_string("/proc/self/maps");
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
    use crate::output::{Output, Plain};

    fn double(x: u32) -> u32 {
        2 * x
    }

    fn entry_of<F>(function: F) -> &'static Entry
    where
        F: crate::Function<u32, OneArgument<u32>, Output: Output<Plain>>,
    {
        TypedEntry::of_value(function).entry
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
        fn no_other_offset_resolves(offset in any::<u64>(), near in -1_000_000i64..1_000_000, name: u64) {
            for offset in [offset, near as u64] {
                let resolved = EntryRef { offset, name }.resolve::<TaskFn>();
                prop_assert!(resolved.is_err());
            }
        }
    }
}
