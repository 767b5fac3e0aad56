//! The names of the program's functions, their files and lines.
//!
//! Debug information is mapped, but what is parsed of it takes memory: more than 100 MB for a large
//! program without optimization. So a process that works never reads its own: one that was started
//! for this does, and ends.

use std::borrow::Cow;
use std::collections::BTreeSet;

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::LittleEndian as Little;
use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{FileHeader, SectionTable, Sym, SymbolTable};

use super::capture::failed;
use super::modules::Mapping;
use super::{Frame, ProgramNames};
use fiber_core::{Result, executable};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Header = FileHeader64<Little>;

/// Returns the names of the functions at these `offsets` in this process's program.
///
/// It parses the program's debug information, as far as the offsets need it, which takes memory:
/// call it in a process that ends soon.
///
/// # Errors
/// [`Error::System`](fiber_core::Error::System) if the program's file can't be read.
/// [`Error::Config`](fiber_core::Error::Config) without the feature `stacks`.
pub fn program_names(offsets: &BTreeSet<u64>) -> Result<ProgramNames> {
    let unreadable = |error| failed("the program's file can't be read", error);
    let file = Mapping::open(executable()).map_err(unreadable)?;
    let offsets: Vec<u64> = offsets.iter().copied().collect();
    let frames = Program::parse(&file).frames(&offsets);
    Ok(offsets.into_iter().zip(frames).collect())
}

struct Program<'a> {
    debug_information: Option<Context<Slice<'a>>>,
    symbols: Option<SymbolTable<'a, Header>>,
}

impl<'a> Program<'a> {
    /// Parses the program. Parts that can't be read are missing.
    fn parse(data: &'a [u8]) -> Program<'a> {
        let nothing = Program { debug_information: None, symbols: None };
        let Ok(header) = Header::parse(data) else { return nothing };
        let Ok(sections) = header.sections(Little, data) else { return nothing };
        Program {
            debug_information: debug_information(&sections, data),
            symbols: sections.symbols(Little, data, object::elf::SHT_SYMTAB).ok(),
        }
    }

    /// Returns the frames of each of the `offsets`, which are sorted.
    fn frames(&self, offsets: &[u64]) -> Vec<Vec<Frame>> {
        let mut frames: Vec<_> =
            offsets.iter().map(|offset| self.by_debug_information(*offset)).collect();
        self.name_functions(offsets, &mut frames);
        frames
    }

    /// Names the function of each address by the symbols, which have its whole path. Line tables
    /// alone have no name for most functions, and a short one for others.
    fn name_functions(&self, offsets: &[u64], frames: &mut [Vec<Frame>]) {
        let (Some(symbols), Some(first), Some(last)) =
            (&self.symbols, offsets.first(), offsets.last())
        else {
            return;
        };
        // One pass over all symbols is faster than an index of them, which is used once.
        for symbol in symbols.iter() {
            let start = symbol.st_value(Little);
            let end = start.saturating_add(symbol.st_size(Little));
            let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
            if start > *last || end <= *first || !is_function {
                continue;
            }
            let from = offsets.partition_point(|offset| *offset < start);
            let to = offsets.partition_point(|offset| *offset < end);
            for frames in &mut frames[from..to] {
                if let (Some(outermost), Ok(name)) =
                    (frames.last_mut(), symbol.name(Little, symbols.strings()))
                {
                    outermost.function = Some(demangle(name));
                }
            }
        }
    }

    /// Returns the frames of an address with what the debug information has about them: the
    /// innermost first, and at least one.
    fn by_debug_information(&self, offset: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut found = self
            .debug_information
            .as_ref()
            .and_then(|context| context.find_frames(offset).skip_all_loads().ok());
        let mut next = || found.as_mut()?.next().ok()?;
        while let Some(found) = next() {
            let name = found.function.as_ref().and_then(|name| name.demangle().ok());
            let location = found.location.as_ref();
            let mut frame = unnamed(offset);
            frame.function = name.map(Cow::into_owned);
            frame.file = location.and_then(|location| location.file).map(Into::into);
            frame.line = location.and_then(|location| location.line);
            frame.inlined = true;
            frames.push(frame);
        }
        match frames.last_mut() {
            Some(outermost) => outermost.inlined = false,
            None => frames.push(unnamed(offset)),
        }
        frames
    }
}

fn debug_information<'a>(
    sections: &SectionTable<'a, Header>,
    data: &'a [u8],
) -> Option<Context<Slice<'a>>> {
    use object::read::elf::SectionHeader;
    let load = |id: SectionId| {
        let section = sections.section_by_name(Little, id.name().as_bytes());
        // A compressed section would have to be decompressed as a whole.
        let content = section.and_then(|(_, section)| {
            let compressed = section.sh_flags(Little) & u64::from(object::elf::SHF_COMPRESSED) != 0;
            if compressed { None } else { section.data(Little, data).ok() }
        });
        Ok::<_, addr2line::gimli::Error>(EndianSlice::new(content.unwrap_or(&[]), LittleEndian))
    };
    Context::from_dwarf(Dwarf::load(load).ok()?).ok()
}

fn unnamed(offset: u64) -> Frame {
    Frame::unnamed(String::new(), offset, true)
}

pub(super) fn demangle(name: &[u8]) -> String {
    addr2line::demangle_auto(String::from_utf8_lossy(name), None).into_owned()
}
