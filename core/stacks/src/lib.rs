//! The stacks of this process's own threads: what each of them does now, and where they spend time.
//!
//! A thread answers for itself. Its signal handler copies the registers and a part of the stack,
//! and the thread continues; it is never stopped. The requesting thread unwinds the copy by the
//! unwind tables of the program and its libraries. This takes no rights and no debugger.
//!
//! Another process names the program's functions by debug information and symbols, because reading
//! them takes memory: see [`Unnamed`](fiber_core::stacks::Unnamed) and [`program_names`].
//!
//! Nothing happens before the first request: no handler, no signal, no memory. From then on, one
//! realtime signal that the program does not use is fiber's. A system call that the kernel does not
//! resume after a handler, for example `poll` or a `sleep` of C, returns `EINTR` in a thread that
//! is asked: see signal(7). The standard library and tokio repeat such calls.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(all(feature = "stacks", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "disabled.rs"]
mod enabled;
#[cfg(all(feature = "stacks", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod enabled;

pub use self::enabled::{capture, capture_thread, from_outside, profile, program_names};
