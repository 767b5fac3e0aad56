//! The program and the libraries that are loaded into this process, with their unwind tables. This
//! file has the `unsafe` code that reads them.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs::File;
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{io, ptr, slice};

use addr2line::gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The program, or a library that is loaded.
#[derive(Clone, Debug)]
pub(super) struct LoadedModule {
    pub(super) is_program: bool,
    /// The path as the dynamic linker knows it. Empty for the program.
    pub(super) path: PathBuf,
    /// The difference between an address in memory and the address in the file.
    pub(super) bias: u64,
    /// The addresses in memory.
    pub(super) range: Range<u64>,
    pub(super) unwind_tables: Option<UnwindTables>,
}

/// `.eh_frame` and its index, with their addresses in the file.
#[derive(Clone, Debug)]
pub(super) struct UnwindTables {
    pub(super) index: Section,
    pub(super) frames: Section,
}

/// A part of a module, from an address to the end of its segment.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) address: u64,
    pub(super) data: Bytes,
}

/// Bytes of a module that stay readable. The program's stay where they are. A library may be
/// unloaded, so its bytes are read from its file: a mapping takes no memory of its own.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Program(&'static [u8]),
    File(Arc<Mapping>, Range<usize>),
    /// The file of the library is gone or was replaced.
    Copy(Arc<[u8]>),
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Program(&[])
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Program(bytes) => bytes,
            Bytes::File(file, range) => &file[range.clone()],
            Bytes::Copy(bytes) => bytes,
        }
    }
}

/// A file that is mapped for reading.
#[derive(Debug)]
pub(super) struct Mapping(&'static [u8]);

impl Mapping {
    /// Maps a file.
    ///
    /// # Errors
    /// An error of the system.
    pub(super) fn open(path: &Path) -> io::Result<Mapping> {
        let file = File::open(path)?;
        let size = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // SAFETY: a mapping at an address that the kernel chooses affects no other memory.
        let start =
            unsafe { mmap(ptr::null_mut(), size, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)? };
        // SAFETY: the mapping has this size, and only dropping this ends it. The linker maps the
        // same file: whoever changes it in place breaks the program anyway.
        Ok(Mapping(unsafe { slice::from_raw_parts(start.cast(), size) }))
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference to it outlives the value:
        // `deref` lends them for as long.
        let _ = unsafe { munmap(self.0.as_ptr().cast_mut().cast(), self.0.len()) };
    }
}

impl LoadedModule {
    /// Returns whether this is the code that the kernel itself adds to each process.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn is_from_kernel(&self) -> bool {
        self.path.as_os_str().as_encoded_bytes().starts_with(b"linux-vdso")
    }
}

/// Counts how often modules were loaded and unloaded. The list of modules is the same while this
/// is. Always 0 where the C library does not count.
pub(super) fn generation() -> (u64, u64) {
    let mut generation = (0, 0);
    for_each(&mut |info| generation = (info.dlpi_adds, info.dlpi_subs));
    generation
}

/// Returns what is loaded.
pub(super) fn loaded() -> Vec<LoadedModule> {
    let mut modules = Vec::new();
    for_each(&mut |info| {
        // The program comes first, and has no name.
        let is_program = modules.is_empty();
        // SAFETY: `info` describes a module, and the linker's lock, which is held during this call,
        // keeps it loaded.
        modules.extend(unsafe { module(info, is_program) });
    });
    modules
}

fn for_each(visit: &mut dyn FnMut(&libc::dl_phdr_info)) {
    unsafe extern "C" fn call(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes a valid `info`, and the `visit` that it was given below.
        unsafe { (*visit.cast::<&mut dyn FnMut(&libc::dl_phdr_info)>())(&*info) };
        0
    }
    let mut visit = visit;
    // SAFETY: `call` has the right signature, and `visit` lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(call), ptr::from_mut(&mut visit).cast()) };
}

/// # Safety
/// `info` describes a module that stays loaded during the call, or for ever if `is_program`.
unsafe fn module(info: &libc::dl_phdr_info, is_program: bool) -> Option<LoadedModule> {
    // SAFETY: the linker describes the module's program headers and its name. The headers of a
    // module with no header are never read.
    let (headers, path) = unsafe {
        let headers = match info.dlpi_phnum {
            0 => return None,
            count => slice::from_raw_parts(info.dlpi_phdr, count.into()),
        };
        let path = match info.dlpi_name.is_null() || is_program {
            true => OsStr::new(""),
            false => OsStr::from_bytes(CStr::from_ptr(info.dlpi_name).to_bytes()),
        };
        (headers, PathBuf::from(path))
    };
    let bias = info.dlpi_addr;
    let in_file = |header: &libc::Elf64_Phdr| header.p_vaddr..header.p_vaddr + header.p_memsz;
    let segments: Vec<_> = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).collect();
    let start = segments.iter().map(|header| in_file(header).start).min()?;
    let end = segments.iter().map(|header| in_file(header).end).max()?;
    let range = bias.wrapping_add(start)..bias.wrapping_add(end);

    let segment_of = |address: u64| {
        segments
            .iter()
            .find(|header| header.p_flags & libc::PF_R != 0 && in_file(header).contains(&address))
    };
    let offset = |segment: &libc::Elf64_Phdr, address: u64| {
        (address - segment.p_vaddr + segment.p_offset) as usize
    };
    let loaded = |address: u64, size: u64| {
        let start = bias.wrapping_add(address) as *const u8;
        // SAFETY: the callers pass a range in a readable segment, which is loaded for as long as
        // the caller promises. Unwind tables are not written once the module is loaded.
        let bytes: &'static [u8] = unsafe { slice::from_raw_parts(start, size as usize) };
        bytes
    };
    let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    // The library's file, unless another has its path by now.
    let file = header.filter(|_| !is_program).and_then(|header| {
        let file = Mapping::open(&path).ok()?;
        let start = offset(segment_of(header.p_vaddr)?, header.p_vaddr);
        let index = file.get(start..start + header.p_memsz as usize)?;
        (index == loaded(header.p_vaddr, header.p_memsz)).then(|| Arc::new(file))
    });
    // The readable bytes from an address in the file to the end of its segment.
    let section = |address: u64| {
        let segment = segment_of(address)?;
        let size = in_file(segment).end - address;
        let start = offset(segment, address);
        let range = start..start + size as usize;
        let data = match &file {
            _ if is_program => Bytes::Program(loaded(address, size)),
            Some(file) if range.end <= file.len() => Bytes::File(Arc::clone(file), range),
            _ => Bytes::Copy(loaded(address, size).into()),
        };
        Some(Section { address, data })
    };
    let unwind_tables = header.and_then(|header| {
        let index = section(header.p_vaddr)?;
        let frames = section(frames_address(&index)?)?;
        Some(UnwindTables { index, frames })
    });
    Some(LoadedModule { is_program, path, bias, range, unwind_tables })
}

/// Returns the address of `.eh_frame` in the file.
fn frames_address(index: &Section) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(index.address);
    let header = EhFrameHdr::new(&index.data, LittleEndian).parse(&bases, 8).ok()?;
    match header.eh_frame_ptr() {
        Pointer::Direct(address) => Some(address),
        Pointer::Indirect(_) => None,
    }
}

/// Returns the words at the addresses `from..to` of a module from the kernel, which is never
/// unloaded.
#[cfg(target_arch = "aarch64")]
pub(super) fn kernel_code(module: &LoadedModule, address: u64) -> Option<[u32; 2]> {
    let last = module.range.end.checked_sub(8)?;
    if !module.is_from_kernel()
        || !(module.range.start..=last).contains(&address)
        || address % 4 != 0
    {
        return None;
    }
    // SAFETY: the two words are in the readable code of the vDSO, which is never unloaded.
    Some(unsafe { *(address as *const [u32; 2]) })
}
