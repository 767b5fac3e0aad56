//! Unwinding of a copied stack.

use framehop::{
    CacheNative, Error, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    UnwindRegsNative, Unwinder as _, UnwinderNative,
};

use super::modules::{Bytes, LoadedModule};
use super::signal::{Registers, interrupted};

/// At most this many calls are unwound. Stacks travel in messages.
const MOST: usize = 256;

/// The unwind tables of all modules, with a cache of what was found in them.
pub(super) struct Unwinder {
    unwinder: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    handler_return: HandlerReturn,
}

/// The code to which signal handlers return.
struct HandlerReturn {
    /// Its address, or 0 if it is not known.
    address: u64,
    #[cfg(target_arch = "aarch64")]
    kernel: Option<LoadedModule>,
}

/// A stack as addresses in the code.
#[derive(Debug)]
pub(super) struct Unwound {
    /// An address in the instruction of each call, the innermost first.
    pub(super) addresses: Vec<u64>,
    pub(super) truncated: bool,
}

impl Unwinder {
    /// Makes an unwinder for `modules`. `handler_return` is as [`super::signal::installed`] returns
    /// it.
    pub(super) fn new(modules: &[LoadedModule], handler_return: u64) -> Unwinder {
        let mut unwinder = UnwinderNative::new();
        for module in modules {
            let Some(tables) = &module.unwind_tables else { continue };
            let range = |address: u64, data: &[u8]| Some(address..address + data.len() as u64);
            let sections = ExplicitModuleSectionInfo {
                eh_frame_hdr_svma: range(tables.index.address, &tables.index.data),
                eh_frame_hdr: Some(tables.index.data.clone()),
                eh_frame_svma: range(tables.frames.address, &tables.frames.data),
                eh_frame: Some(tables.frames.data.clone()),
                ..ExplicitModuleSectionInfo::default()
            };
            let name = module.path.to_string_lossy().into_owned();
            unwinder.add_module(Module::new(name, module.range.clone(), module.bias, sections));
        }
        let handler_return = HandlerReturn {
            address: handler_return,
            #[cfg(target_arch = "aarch64")]
            kernel: modules.iter().find(|module| module.is_from_kernel()).cloned(),
        };
        Unwinder { unwinder, cache: CacheNative::new(), handler_return }
    }

    /// Unwinds a stack whose words begin at the stack pointer.
    pub(super) fn unwind(&mut self, registers: Registers, stack: &[u64]) -> Unwound {
        let bottom = registers.stack & !7;
        let mut read = |address: u64| {
            let index = address.checked_sub(bottom).ok_or(())? / 8;
            stack.get(index as usize).copied().ok_or(())
        };
        let mut regs = registers.into();
        let mut address = FrameAddress::from_instruction_pointer(registers.instruction);
        let mut addresses = Vec::new();
        let truncated = loop {
            if addresses.len() == MOST {
                break true;
            }
            addresses.push(address.address_for_lookup());
            if self.handler_return.is_at(address.address()) {
                // The interrupted code is not the caller of the handler: the kernel has stored its
                // registers on the stack.
                let Ok(below) = interrupted(context_address(&regs), &mut read) else { break true };
                regs = below.into();
                address = FrameAddress::from_instruction_pointer(below.instruction);
                continue;
            }
            let caller = self.unwinder.unwind_frame(address, &mut regs, &mut self.cache, &mut read);
            address = match caller {
                Ok(None) | Err(Error::ReturnAddressIsNull) => break false,
                Ok(Some(caller)) => match FrameAddress::from_return_address(caller) {
                    Some(caller) => caller,
                    None => break false,
                },
                Err(_) => break true,
            };
        };
        Unwound { addresses, truncated }
    }
}

impl HandlerReturn {
    #[cfg(target_arch = "x86_64")]
    fn is_at(&self, address: u64) -> bool {
        self.address != 0 && self.address == address
    }

    #[cfg(target_arch = "aarch64")]
    fn is_at(&self, address: u64) -> bool {
        /// `mov x8, #139; svc #0`
        const RT_SIGRETURN: [u32; 2] = [0xd280_1168, 0xd400_0001];
        let code = |module| super::modules::kernel_code(module, address);
        address == self.address && self.address != 0
            || self.kernel.as_ref().and_then(code) == Some(RT_SIGRETURN)
    }
}

/// Returns the address of the `ucontext_t` of a handler that returns.
fn context_address(regs: &UnwindRegsNative) -> u64 {
    // On aarch64, a `siginfo_t` is in front of it.
    regs.sp() + if cfg!(target_arch = "aarch64") { 128 } else { 0 }
}

#[cfg(target_arch = "x86_64")]
impl From<Registers> for UnwindRegsNative {
    fn from(registers: Registers) -> UnwindRegsNative {
        UnwindRegsNative::new(registers.instruction, registers.stack, registers.frame)
    }
}

#[cfg(target_arch = "aarch64")]
impl From<Registers> for UnwindRegsNative {
    fn from(registers: Registers) -> UnwindRegsNative {
        // User space has addresses of 48 bits. The bits above may authenticate a return address.
        let mask = framehop::aarch64::PtrAuthMask(u64::MAX >> 16);
        let Registers { link, stack, frame, .. } = registers;
        UnwindRegsNative::new_with_ptr_auth_mask(mask, link, stack, frame)
    }
}
