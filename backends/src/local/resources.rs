//! Resource limits of a job's process on this host.
//!
//! - Memory is a limit on the process's private writable mappings (`RLIMIT_DATA`), which needs no
//!   privileges. An allocation beyond it fails, which ends a Rust program. It counts memory that
//!   the process may write, whether it does or not.
//! - CPU cores are a hint: the system's scheduler shares them. A job that asks for more than exist
//!   is refused.
//! - GPUs are assigned one by one, through `CUDA_VISIBLE_DEVICES`.

use std::num::NonZero;

use fiber_core::Meta;
use rustix::process::{Pid, Resource, Rlimit};

use crate::BackendError;
use crate::gpus::{GpuAllocation, GpuAllocator};

/// The resources granted to a job.
#[derive(Debug)]
pub(super) struct Grant {
    /// The memory limit, in bytes.
    pub(super) memory: Option<u64>,
    pub(super) gpus: Option<GpuAllocation>,
}

/// Grants the requested resources.
///
/// # Errors
/// The resource that can't be granted, with a remedy.
pub(super) fn grant(meta: &Meta, gpus: &GpuAllocator) -> Result<Grant, BackendError> {
    if let Some(cores) = meta.cpu {
        let available = std::thread::available_parallelism().map_or(1, NonZero::get);
        if cores > available as f64 {
            return Err(refused!(
                "it asks for {cores} CPU cores, but this process may use {available}: ask for \
                 fewer, or run it on a larger host"
            ));
        }
    }
    if let Some(asked) = meta.memory
        && asked.as_u64() > memory_of_host()
    {
        return Err(refused!(
            "it asks for {asked} of memory, but this host has {}: ask for less, or run it on a \
             larger host",
            bytesize::ByteSize(memory_of_host())
        ));
    }
    let gpus = meta.gpu.filter(|count| *count > 0).map(|count| gpus.take(count)).transpose()?;
    Ok(Grant { memory: meta.memory.map(|size| size.as_u64()), gpus })
}

/// Sets the limits of a new process.
///
/// # Errors
/// The system's error.
pub(super) fn limit(pid: Pid, grant: &Grant) -> Result<(), BackendError> {
    let Some(bytes) = grant.memory else { return Ok(()) };
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    rustix::process::prlimit(Some(pid), Resource::Data, limit).map(drop).map_err(|error| {
        let own = rustix::process::getrlimit(Resource::Data).maximum;
        let remedy = match own {
            Some(own) if own < bytes => {
                format!(": the limit of this process itself is {}", bytesize::ByteSize(own))
            }
            _ => String::new(),
        };
        refused!("its memory can't be limited to {}: {error}{remedy}", bytesize::ByteSize(bytes))
    })
}

/// Returns whether the last lines of an aborted process report a failed allocation.
pub(super) fn ran_out_of_memory(tail: &[String]) -> bool {
    tail.iter().any(|line| line.starts_with("memory allocation of ") && line.ends_with(" failed"))
}

/// Returns the memory that processes of this one can have: the host's, or what its control groups
/// allow.
fn memory_of_host() -> u64 {
    let host = rustix::system::sysinfo();
    let host = (host.totalram as u64).saturating_mul(host.mem_unit.into());
    host.min(fiber_core::control_groups::memory_limit().unwrap_or(u64::MAX))
}
