//! Arguments with outputs among them, in parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use fiber_core::value_memory::Stored;
use fiber_core::{Error, Result};
use serde::de::DeserializeOwned;

use crate::blob::{Blob, Blobs, Place};
use crate::codec::{self, EncodedValue};
use crate::output::{Digest, OutputCell, Recipe};

/// The arguments of a task that has outputs among them. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(Arc<[Part]>);

/// Collects the arguments of a task.
#[derive(Debug, Default)]
pub struct PartsBuilder(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Most parts are outputs, which take far fewer bytes than a value.
    Value(Box<EncodedValue>),
    Output(Arc<OutputCell>),
    List(u32),
}

// A graph has one for each of its edges.
const _: () = assert!(size_of::<Part>() <= 16);

impl Part {
    fn size(&self) -> usize {
        match self {
            Part::Value(value) => value.size(),
            Part::Output(cell) => cell.value().and_then(Result::ok).map_or(0, |value| value.size()),
            Part::List(_) => 0,
        }
    }

    /// Returns the folder of the journal that has the value; empty if none has it.
    fn journal(&self) -> &str {
        let Part::Output(cell) = self else { return "" };
        cell.maker().and_then(|maker| maker.call.journal.as_deref()).unwrap_or_default()
    }
}

/// Set in the number of a value's blobs if the folder of its journal follows: it is another one
/// than that of the value before.
const OTHER_JOURNAL: u32 = 1 << 31;

impl PartsBuilder {
    pub(super) fn push(&mut self, part: Part) {
        self.0.push(part);
    }

    pub(super) fn push_value(&mut self, value: EncodedValue) {
        self.push(Part::Value(Box::new(value)));
    }

    /// Returns the arguments.
    #[must_use]
    pub fn build(self) -> Parts {
        Parts(self.0.into())
    }
}

impl Parts {
    /// Returns the outputs among them.
    pub fn outputs(&self) -> impl Iterator<Item = &Arc<OutputCell>> {
        self.0.iter().filter_map(|part| match part {
            Part::Output(cell) => Some(cell),
            Part::Value(_) | Part::List(_) => None,
        })
    }

    /// Returns whether all outputs are there, or will never be.
    pub fn are_there(&self) -> bool {
        self.outputs().all(|cell| cell.is_filled())
    }

    /// Returns the length of all values that are there, with their blobs.
    pub fn size(&self) -> usize {
        self.0.iter().map(Part::size).sum()
    }

    /// Returns the machine that has most bytes of the outputs, if any has some, and how many.
    pub fn nearest(&self) -> Option<(Place, u64)> {
        let mut bytes = BTreeMap::<Place, u64>::new();
        for value in self.outputs().filter_map(|cell| cell.value()?.ok()) {
            for blob in value.blobs.iter() {
                for place in blob.places() {
                    *bytes.entry(place).or_default() += blob.len() as u64;
                }
            }
        }
        bytes.into_iter().max_by_key(|(_, sum)| *sum)
    }

    /// Returns the failure of the first output that has failed.
    pub fn failure(&self) -> Option<Error> {
        self.outputs().find_map(|cell| cell.value()?.err())
    }

    /// Puts the values of all outputs into their places, behind what `out` has, and returns the
    /// blobs.
    ///
    /// # Errors
    /// The failure of the first output that has failed, or is not there.
    pub fn append(&self, out: &mut Vec<u8>) -> Result<Blobs> {
        let (mut blobs, mut last) = (Vec::<Blob>::new(), "");
        for part in self.0.iter() {
            let value = match part {
                Part::List(count) => {
                    out.extend_from_slice(&count.to_le_bytes());
                    continue;
                }
                Part::Value(value) => EncodedValue::clone(value),
                Part::Output(cell) => there(cell)?,
            };
            let journal = part.journal();
            let changed = if journal == last { 0 } else { OTHER_JOURNAL };
            out.extend_from_slice(&(value.bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&(value.blobs.len() as u32 | changed).to_le_bytes());
            if changed > 0 {
                out.extend_from_slice(&(journal.len() as u32).to_le_bytes());
                out.extend_from_slice(journal.as_bytes());
                last = journal;
            }
            out.extend_from_slice(&value.bytes);
            blobs.extend(value.blobs.iter().cloned());
        }
        Ok(blobs.into())
    }
}

impl Parts {
    /// Writes the arguments as [`append`](Parts::append) does, without the one value of `missing`.
    /// Returns the place of that in `out`. Returns `None` if the arguments are not there otherwise,
    /// or have blobs or values of a journal.
    pub fn append_around(&self, missing: &Arc<OutputCell>, out: &mut Vec<u8>) -> Option<usize> {
        let mut place = None;
        for part in self.0.iter() {
            let value = match part {
                Part::List(count) => {
                    out.extend_from_slice(&count.to_le_bytes());
                    continue;
                }
                Part::Output(cell) if Arc::ptr_eq(cell, missing) => {
                    if place.replace(out.len()).is_some() {
                        return None;
                    }
                    continue;
                }
                Part::Value(value) => EncodedValue::clone(value),
                Part::Output(cell) => there(cell).ok()?,
            };
            if !value.blobs.is_empty() || !part.journal().is_empty() {
                return None;
            }
            Parts::append_value(out, &value.bytes);
        }
        place
    }

    /// Writes a value without blobs into its place among other arguments.
    pub fn append_value(out: &mut Vec<u8>, value: &[u8]) {
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(value);
    }
}

/// The arguments of a task that may run again. It keeps no values that can be made again.
#[derive(Debug)]
pub struct PartsRecipe {
    parts: Vec<PartRecipe>,
    /// Counts the values that are no outputs.
    _stored: Stored,
}

#[derive(Debug)]
enum PartRecipe {
    Kept(Part),
    Made(Arc<Recipe>),
}

/// About the bytes that a part takes besides its value.
const PART: usize = 64;

impl Parts {
    /// Returns how these arguments are had again, and how many bytes that keeps.
    pub fn recipe(&self) -> (PartsRecipe, usize) {
        let (mut size, mut stored) = (0, 0);
        let recipe = |part: &Part| {
            if let Part::Output(cell) = part
                && let Some(recipe) = cell.recipe()
            {
                size += PART + recipe.size();
                return PartRecipe::Made(recipe);
            }
            if let Part::Value(value) = part {
                stored += value.private_len();
            }
            size += PART + part.size();
            PartRecipe::Kept(part.clone())
        };
        let parts = self.0.iter().map(recipe).collect();
        (PartsRecipe { parts, _stored: Stored::new(stored) }, size)
    }
}

impl PartsRecipe {
    /// Returns the arguments. Inputs that are lost are being made again.
    pub fn parts(&self) -> Parts {
        let part = |part: &PartRecipe| match part {
            PartRecipe::Kept(part) => part.clone(),
            PartRecipe::Made(recipe) => Part::Output(recipe.cell()),
        };
        Parts(self.parts.iter().map(part).collect())
    }
}

/// Values of at most this many bytes identify themselves; longer ones have a digest.
pub(super) const SHORT: usize = 64;

impl Parts {
    /// Returns bytes that identify the arguments by their values alone, wherever these come from.
    /// `digest` is that of a value in the form that [`EncodedValue::alone`] gives.
    ///
    /// # Errors
    /// The failure of the first output that has failed, or is not there.
    pub fn identity(&self, digest: impl Fn(&EncodedValue) -> Digest) -> Result<Vec<u8>> {
        let mut identity = Vec::new();
        for part in self.0.iter() {
            let (value, cell) = match part {
                Part::List(count) => {
                    identity.push(b'l');
                    identity.extend_from_slice(&count.to_le_bytes());
                    continue;
                }
                Part::Value(value) => (EncodedValue::clone(value), None),
                Part::Output(cell) => (there(cell)?, Some(cell)),
            };
            if value.blobs.is_empty() && value.bytes.len() <= SHORT {
                identity.extend_from_slice(&[b'v', value.bytes.len() as u8]);
                identity.extend_from_slice(&value.bytes);
                continue;
            }
            let compute = || digest(&value.alone());
            identity.push(b'd');
            identity.extend_from_slice(&match cell {
                Some(cell) => cell.digest(compute),
                None => compute(),
            });
        }
        Ok(identity)
    }
}

/// Returns the value of an output that is there.
fn there(cell: &OutputCell) -> Result<EncodedValue> {
    let missing = || Err(Error::invalid("Parts", "an output is not there"));
    cell.value().unwrap_or_else(missing)
}

/// Reads parts.
#[derive(Debug)]
pub struct PartsReader<'a> {
    bytes: &'a [u8],
    blobs: &'a [Blob],
    /// The folder of the journal that has the value; empty if none has it.
    journal: &'a [u8],
}

impl<'a> PartsReader<'a> {
    /// Reads these bytes, which have these blobs.
    pub fn new(bytes: &'a [u8], blobs: &'a Blobs) -> PartsReader<'a> {
        PartsReader { bytes, blobs, journal: &[] }
    }

    pub(super) fn number(&mut self) -> Result<u32> {
        let (number, rest) = self.bytes.split_first_chunk().ok_or_else(malformed)?;
        self.bytes = rest;
        Ok(u32::from_le_bytes(*number))
    }

    pub(super) fn value<T: DeserializeOwned>(&mut self) -> Result<T> {
        let (bytes, blobs) = self.encoded()?;
        codec::decode_with(bytes, &blobs).map_err(|error| self.unreadable(error))
    }

    fn encoded(&mut self) -> Result<(&'a [u8], Blobs)> {
        let (len, count) = (self.number()?, self.number()?);
        if count & OTHER_JOURNAL != 0 {
            let len = self.number()?;
            self.journal = self.bytes(len)?;
        }
        let count = (count & !OTHER_JOURNAL) as usize;
        let (blobs, other_blobs) = self.blobs.split_at_checked(count).ok_or_else(malformed)?;
        self.blobs = other_blobs;
        Ok((self.bytes(len)?, Blobs::from(blobs.to_vec())))
    }

    #[cold]
    fn unreadable(&self, error: Error) -> Error {
        let journal = String::from_utf8_lossy(self.journal);
        error.recorded((!journal.is_empty()).then_some(&*journal))
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(len as usize).ok_or_else(malformed)?;
        self.bytes = rest;
        Ok(bytes)
    }
}

fn malformed() -> Error {
    Error::decode("the arguments of a task", "they have another layout")
}
