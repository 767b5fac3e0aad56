//! What a job's process may take of this host.
//!
//! - Memory is a limit on what a process can allocate (`RLIMIT_DATA`): needs no privileges, and
//!   counts what may be written, whether it was or not. An allocation beyond it fails, which ends a
//!   Rust program.
//! - Processor cores are a hint: the system's scheduler shares them. More than there are is
//!   refused.
//! - Graphics processors are given one by one, by `CUDA_VISIBLE_DEVICES`.

use std::fs;
use std::num::NonZero;

use fiber_core::Meta;
use rustix::process::{Pid, Resource, Rlimit};

use crate::gpus::{GpuAllocation, GpuAllocator};

/// What was granted to a job.
#[derive(Debug)]
pub(super) struct Grant {
    /// Bytes.
    pub(super) memory: Option<u64>,
    pub(super) gpus: Option<GpuAllocation>,
}

/// Grants what is asked for.
///
/// # Errors
/// What can't be granted, and why.
pub(super) fn grant(meta: &Meta, gpus: &GpuAllocator) -> Result<Grant, String> {
    if let Some(cores) = meta.cpu {
        let available = std::thread::available_parallelism().map_or(1, NonZero::get);
        if cores > available as f64 {
            return Err(format!(
                "it is to have {cores} processor cores, but this process may use {available}: ask for fewer, or run it \
                 on a larger host"
            ));
        }
    }
    if let Some(asked) = meta.memory
        && let Some(available) = memory_of_host().filter(|available| asked.as_u64() > *available)
    {
        return Err(format!(
            "it is to have {asked} of memory, but this host has {}: ask for less, or run it on a larger host",
            bytesize::ByteSize(available)
        ));
    }
    let gpus = meta.gpu.filter(|count| *count > 0).map(|count| gpus.take(count)).transpose()?;
    Ok(Grant { memory: meta.memory.map(|size| size.as_u64()), gpus })
}

/// Limits a process that was just started.
///
/// # Errors
/// The system's words.
pub(super) fn limit(pid: Pid, grant: &Grant) -> Result<(), String> {
    let Some(bytes) = grant.memory else { return Ok(()) };
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    rustix::process::prlimit(Some(pid), Resource::Data, limit).map(drop).map_err(|error| {
        let own = rustix::process::getrlimit(Resource::Data).maximum;
        let remedy = match own {
            Some(own) if own < bytes => {
                format!(": this process may itself take {} only", bytesize::ByteSize(own))
            }
            _ => String::new(),
        };
        format!("its memory can't be limited to {}: {error}{remedy}", bytesize::ByteSize(bytes))
    })
}

/// Whether the last words of a process that aborted say that it was refused memory.
pub(super) fn ran_out_of_memory(tail: &[String]) -> bool {
    tail.iter().any(|line| line.starts_with("memory allocation of ") && line.ends_with(" failed"))
}

fn memory_of_host() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
