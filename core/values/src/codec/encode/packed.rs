//! Writes packed runs.
//!
//! Numbers are taken in blocks, so that loops over a block stay in the processor's cache. An
//! integer takes as many bytes as the run's largest one needs. The run begins with the width that
//! its first block needs. A later block that needs more widens what is there.

use serde::Serialize;

use super::bits::Bits;
use super::{Result, length};
use crate::blob::scope;
use crate::codec::SOME;
use crate::codec::packed::{Kind, RUN_APART};

/// The numbers in a block: 1 KiB.
const BLOCK: usize = 128;

/// The size of a run's header: mark, kind, length.
const HEADER: usize = 2 + size_of::<u32>();

/// Writes numbers of `kind`, of which `first` are the bits of the first. There are `len`, unless
/// the iterator's hint is wrong.
#[inline]
pub(super) fn write<T: Serialize>(
    out: &mut Vec<u8>,
    kind: Kind,
    len: usize,
    first: u64,
    rest: impl Iterator<Item = T>,
) -> Result {
    length(len)?;
    let mut run = Run { at: out.len(), kind: kind.narrowest(), count: 0, out };
    run.out.extend_from_slice(&[0; HEADER]);
    let mut wrong = None;
    let rest = rest.map(|item| match item.serialize(Bits) {
        Ok((_, bits)) => bits,
        Err(error) => {
            wrong = Some(error);
            0
        }
    });
    run.blocks(len, first, rest);
    let written = run.end();
    wrong.map_or(written, Err)
}

/// Writes numbers of `kind` that are in memory as they are in a run.
pub(super) fn write_plain(out: &mut Vec<u8>, kind: Kind, bytes: &[u8]) -> Result {
    let len = length(bytes.len() / kind.width())?.to_be_bytes();
    match scope::add_copy(bytes) {
        Some(blob) => write_apart(out, kind, blob),
        None => {
            out.extend_from_slice(&header(kind, len));
            out.extend_from_slice(bytes);
        }
    }
    Ok(())
}

fn header(kind: Kind, len: [u8; 4]) -> [u8; HEADER] {
    [SOME, kind as u8, len[0], len[1], len[2], len[3]]
}

/// Writes a run whose numbers are in a blob.
fn write_apart(out: &mut Vec<u8>, kind: Kind, blob: u32) {
    out.extend_from_slice(&[SOME, RUN_APART, kind as u8]);
    out.extend_from_slice(&blob.to_be_bytes());
}

/// A run that is being written.
struct Run<'out> {
    out: &'out mut Vec<u8>,
    /// Where the header is.
    at: usize,
    kind: Kind,
    count: usize,
}

impl Run<'_> {
    #[inline]
    fn blocks(&mut self, len: usize, first: u64, mut rest: impl Iterator<Item = u64>) {
        let mut block = [0; BLOCK];
        block[0] = first;
        let mut filled = 1;
        loop {
            for (place, bits) in block[filled..].iter_mut().zip(&mut rest) {
                *place = bits;
                filled += 1;
            }
            self.block(&block[..filled], len);
            if filled < BLOCK {
                return;
            }
            filled = 0;
        }
    }

    fn block(&mut self, block: &[u64], len: usize) {
        let needed = self.kind.for_all(block);
        if self.count == 0 {
            self.kind = needed;
            self.out.reserve(len * needed.width());
        } else if needed.width() > self.kind.width() {
            self.widen(needed);
        }
        append(self.out, self.kind, block);
        self.count += block.len();
    }

    #[cold]
    fn widen(&mut self, to: Kind) {
        let narrow = self.out.split_off(self.at + HEADER);
        self.out.reserve(narrow.len() / self.kind.width() * to.width());
        for part in narrow.chunks(BLOCK * self.kind.width()) {
            let mut block = [0; BLOCK];
            let numbers = part.chunks_exact(self.kind.width());
            let filled = numbers.len();
            block.iter_mut().zip(numbers).for_each(|(bits, bytes)| *bits = self.kind.read(bytes));
            append(self.out, to, &block[..filled]);
        }
        self.kind = to;
    }

    fn end(self) -> Result {
        let len = length(self.count)?.to_be_bytes();
        if let Some(blob) = scope::add_copy(&self.out[self.at + HEADER..]) {
            self.out.truncate(self.at);
            // What is left may be stored: it keeps no memory of the numbers.
            self.out.shrink_to_fit();
            write_apart(self.out, self.kind, blob);
            return Ok(());
        }
        self.out[self.at..self.at + HEADER].copy_from_slice(&header(self.kind, len));
        Ok(())
    }
}

fn append(out: &mut Vec<u8>, kind: Kind, block: &[u64]) {
    match kind.width() {
        1 => append_as::<1>(out, block),
        2 => append_as::<2>(out, block),
        4 => append_as::<4>(out, block),
        _ => append_as::<8>(out, block),
    }
}

fn append_as<const WIDTH: usize>(out: &mut Vec<u8>, block: &[u64]) {
    let start = out.len();
    out.resize(start + block.len() * WIDTH, 0);
    let (places, _) = out[start..].as_chunks_mut::<WIDTH>();
    for (place, bits) in places.iter_mut().zip(block) {
        *place = *bits.to_le_bytes().first_chunk().expect("a number has up to 8 bytes");
    }
}
