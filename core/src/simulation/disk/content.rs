//! The content of a file: what is on the disk, and the changes since.

use super::World;

/// The part of a write that a power loss leaves if the write was not synced. Places are fractions
/// of its length, below 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// All of it.
    Kept,
    /// The bytes before this place.
    Cut(f64),
    /// The bytes before this place, and zeros in place of the others.
    Zeroed(f64),
    /// All of it, with bits of one byte changed.
    Garbled(f64, u8),
    /// All of it, and further bytes behind it.
    Longer(Vec<u8>),
}

impl Fate {
    /// Changes the bytes of a write to those that are on the disk.
    pub fn strike(&self, bytes: &mut Vec<u8>) {
        let place = |fraction: &f64| (bytes.len() as f64 * fraction) as usize;
        match self {
            Fate::Kept => {}
            Fate::Cut(at) => bytes.truncate(place(at)),
            Fate::Zeroed(at) => {
                let at = place(at);
                bytes[at..].fill(0);
            }
            Fate::Garbled(at, mask) => {
                let at = place(at);
                bytes[at..].first_mut().into_iter().for_each(|byte| *byte ^= mask);
            }
            Fate::Longer(more) => bytes.extend(more),
        }
    }

    fn draw(world: &dyn World) -> Fate {
        const PLACES: u64 = 1 << 20;
        let at = world.draw(PLACES) as f64 / PLACES as f64;
        match world.draw(6) {
            0 | 1 => Fate::Kept,
            2 => Fate::Cut(at),
            3 => Fate::Zeroed(at),
            4 => Fate::Garbled(at, 1 << world.draw(8)),
            _ => {
                let mut more = vec![0; world.draw(100) as usize];
                world.fill(&mut more);
                Fate::Longer(more)
            }
        }
    }
}

/// How many of the changes that were not synced are kept.
#[derive(Clone, Copy)]
pub(super) enum Kept {
    All,
    None,
    Some,
}

impl Kept {
    pub(super) fn draw(world: &dyn World) -> Kept {
        match world.draw(4) {
            0 => Kept::All,
            1 => Kept::None,
            _ => Kept::Some,
        }
    }

    /// Returns whether the next change is kept.
    pub(super) fn keeps(self, world: &dyn World) -> bool {
        match self {
            Kept::All => true,
            Kept::None => false,
            Kept::Some => world.draw(2) == 0,
        }
    }
}

#[derive(Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

impl Change {
    fn apply(self, file: &mut Vec<u8>) {
        match self {
            Change::Write { bytes, .. } if bytes.is_empty() => {}
            Change::Write { offset, bytes } => {
                let range = offset as usize..offset as usize + bytes.len();
                file.resize(file.len().max(range.end), 0);
                file[range].copy_from_slice(&bytes);
            }
            Change::SetLen(len) => file.resize(len as usize, 0),
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Content {
    durable: Vec<u8>,
    changes: Vec<Change>,
}

impl Content {
    pub(super) fn of(durable: Vec<u8>) -> Content {
        Content { durable, changes: Vec::new() }
    }

    /// Returns what is on the disk.
    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        self.changes.drain(..).for_each(|change| change.apply(&mut self.durable));
    }

    /// Loses any part of the changes. What is left of them is on the disk.
    pub(super) fn lose(&mut self, world: &dyn World) {
        let kept = Kept::draw(world);
        for mut change in self.changes.drain(..) {
            if !kept.keeps(world) {
                continue;
            }
            if let (Kept::Some, Change::Write { bytes, .. }) = (kept, &mut change) {
                Fate::draw(world).strike(bytes);
            }
            change.apply(&mut self.durable);
        }
    }
}
