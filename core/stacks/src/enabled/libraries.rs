//! The frames of code that is loaded into this process. Functions of libraries are named by the
//! symbols of their files, which are mapped meanwhile. Those of the program get no name here: its
//! debug information takes memory, so another process reads it (see [`super::program`]).

use std::collections::HashMap;
use std::path::Path;

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};

use super::Frame;
use super::modules::{LoadedModule, Mapping};
use super::program::demangle;

/// Returns the frame of each address.
pub(super) fn frames(
    addresses: impl Iterator<Item = u64>,
    modules: &[LoadedModule],
) -> HashMap<u64, Frame> {
    let mut addresses: Vec<u64> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut known = HashMap::new();
    for here in addresses.chunk_by(|one, other| {
        let holds = |module: &&LoadedModule| module.range.contains(one);
        modules.iter().find(holds).is_some_and(|module| module.range.contains(other))
    }) {
        let module = modules.iter().find(|module| module.range.contains(&here[0]));
        let mut frames: Vec<Frame> = here.iter().map(|address| unnamed(module, *address)).collect();
        if let Some(library) = module.filter(|module| !module.is_program) {
            name_by_file(&mut frames, &library.path);
        }
        known.extend(here.iter().copied().zip(frames));
    }
    known
}

fn unnamed(module: Option<&LoadedModule>, address: u64) -> Frame {
    let in_program = module.is_some_and(|module| module.is_program);
    let program = in_program.then(|| fiber_core::executable_name().unwrap_or_default());
    let path = program.as_deref().or(module.map(|module| module.path.as_path()));
    let name = path.and_then(Path::file_name).unwrap_or_default();
    let offset = address.wrapping_sub(module.map_or(0, |module| module.bias));
    Frame::unnamed(name.to_string_lossy().into_owned(), offset, in_program)
}

/// Names frames by the symbols of a library's file. The file may have been replaced since it was
/// loaded; then the names are those of the new file.
fn name_by_file(frames: &mut [Frame], path: &Path) {
    let Ok(data) = Mapping::open(path) else { return };
    let Ok(file) = ElfFile::<FileHeader64<LittleEndian>>::parse(&*data) else { return };
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let range = symbol.address()..symbol.address().saturating_add(symbol.size());
        if symbol.kind() != SymbolKind::Text || range.is_empty() {
            continue;
        }
        let from = frames.partition_point(|frame| frame.offset < range.start);
        for frame in frames[from..].iter_mut().take_while(|frame| frame.offset < range.end) {
            frame.function = symbol.name().ok().map(|name| demangle(name.as_bytes()));
        }
    }
}
