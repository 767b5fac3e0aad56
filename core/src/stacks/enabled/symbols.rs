//! The names of functions, their files and lines.
//!
//! The program's debug information is parsed once, as far as addresses need it, and kept. Code
//! without debug information, such as the C library, is named by the symbols of its file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile, FileHeader, SectionTable, Sym, SymbolTable};
use object::{LittleEndian as Little, Object, ObjectSymbol, ReadCache, SymbolKind};

use super::Frame;
use super::modules::{LoadedModule, map_program};

type Slice = EndianSlice<'static, LittleEndian>;
type Header = FileHeader64<Little>;

/// At most this many addresses are kept with their frames.
const MOST_KNOWN: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Symbols {
    program: Option<Program>,
    /// The frames of addresses in memory. More than one if functions are inlined.
    known: HashMap<u64, Vec<Frame>>,
}

/// The program's file.
struct Program {
    debug_information: Option<Context<Slice>>,
    symbols: Option<SymbolTable<'static, Header>>,
}

impl Symbols {
    /// Forgets addresses, because other modules may be at them.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Finds the frames of addresses, for [`frames`](Symbols::frames).
    pub(super) fn resolve(
        &mut self,
        addresses: impl Iterator<Item = u64>,
        modules: &[LoadedModule],
    ) {
        if self.known.len() > MOST_KNOWN {
            self.known.clear();
        }
        let mut new: Vec<u64> =
            addresses.filter(|address| !self.known.contains_key(address)).collect();
        new.sort_unstable();
        new.dedup();
        let mut rest = &new[..];
        while let Some(first) = rest.first() {
            let module = modules.iter().find(|module| module.range.contains(first));
            let same = |address: &&u64| module.is_some_and(|module| module.range.contains(address));
            let count = rest.iter().take_while(same).count().max(1);
            let (here, others) = rest.split_at(count);
            rest = others;
            match module {
                Some(module) => self.resolve_in(module, here),
                None => {
                    self.known.insert(*first, vec![unnamed("", *first)]);
                }
            }
        }
    }

    /// Returns the frames of an address, the innermost first.
    pub(super) fn frames(&self, address: u64) -> &[Frame] {
        self.known.get(&address).map_or(&[], Vec::as_slice)
    }

    fn resolve_in(&mut self, module: &LoadedModule, addresses: &[u64]) {
        let program = module.is_program.then(|| std::env::current_exe().unwrap_or_default());
        let path = program.as_ref().unwrap_or(&module.path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let offsets: Vec<u64> =
            addresses.iter().map(|address| address.wrapping_sub(module.bias)).collect();
        let frames: Vec<Vec<Frame>> = if module.is_program {
            self.program.get_or_insert_with(Program::open).frames(&offsets, &name)
        } else {
            let unnamed = |offset: &u64| vec![unnamed(&name, *offset)];
            let mut frames: Vec<_> = offsets.iter().map(unnamed).collect();
            name_by_file(&mut frames, &module.path);
            frames
        };
        self.known.extend(addresses.iter().copied().zip(frames));
    }
}

fn unnamed(module: &str, offset: u64) -> Frame {
    let module = module.into();
    Frame { function: None, file: None, line: None, module, offset, inlined: false }
}

impl Program {
    /// Opens the program. Parts that can't be read are missing.
    fn open() -> Program {
        let nothing = Program { debug_information: None, symbols: None };
        let Ok(data) = map_program() else { return nothing };
        let Ok(header) = Header::parse(data) else { return nothing };
        let Ok(sections) = header.sections(Little, data) else { return nothing };
        Program {
            debug_information: debug_information(&sections, data),
            symbols: sections.symbols(Little, data, object::elf::SHT_SYMTAB).ok(),
        }
    }

    /// Returns the frames of each of the `offsets`, which are sorted.
    fn frames(&self, offsets: &[u64], module: &str) -> Vec<Vec<Frame>> {
        let mut frames: Vec<_> =
            offsets.iter().map(|offset| self.by_debug_information(*offset, module)).collect();
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
        // One pass over all symbols is faster than an index of them, which most captures would make
        // and not use again.
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
    fn by_debug_information(&self, offset: u64, module: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut found = self
            .debug_information
            .as_ref()
            .and_then(|context| context.find_frames(offset).skip_all_loads().ok());
        let mut next = || found.as_mut()?.next().ok()?;
        while let Some(found) = next() {
            let name = found.function.as_ref().and_then(|name| name.demangle().ok());
            let location = found.location.as_ref();
            frames.push(Frame {
                function: name.map(Cow::into_owned),
                file: location.and_then(|location| location.file).map(Into::into),
                line: location.and_then(|location| location.line),
                inlined: true,
                ..unnamed(module, offset)
            });
        }
        match frames.last_mut() {
            Some(outermost) => outermost.inlined = false,
            None => frames.push(unnamed(module, offset)),
        }
        frames
    }
}

fn debug_information(
    sections: &SectionTable<'static, Header>,
    data: &'static [u8],
) -> Option<Context<Slice>> {
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

/// Names frames by the symbols of a library's file. The file may have been replaced since it was
/// loaded; then the names are those of the new file.
fn name_by_file(frames: &mut [Vec<Frame>], path: &Path) {
    let Ok(file) = File::open(path) else { return };
    let data = ReadCache::new(file);
    let Ok(file) = ElfFile::<Header, _>::parse(&data) else { return };
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let range = symbol.address()..symbol.address().saturating_add(symbol.size());
        if symbol.kind() != SymbolKind::Text || range.is_empty() {
            continue;
        }
        for frame in frames.iter_mut().flatten().filter(|frame| range.contains(&frame.offset)) {
            frame.function = symbol.name().ok().map(|name| demangle(name.as_bytes()));
        }
    }
}

fn demangle(name: &[u8]) -> String {
    addr2line::demangle_auto(String::from_utf8_lossy(name), None).into_owned()
}
