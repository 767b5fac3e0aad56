//! GPUs: which ones exist, and which are free.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;

use fiber_core::{Config, gpus_in_words, shortage};
use parking_lot::Mutex;

use crate::BackendError;

/// The environment variable by which CUDA restricts the GPUs of a process.
pub(crate) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Assigns the GPUs of this process to its jobs. Each GPU belongs to one job at a time.
#[derive(Clone, Debug)]
pub(crate) struct GpuAllocator {
    /// `None` until the first job asks for a GPU, unless the configuration or the environment names
    /// them.
    inventory: Arc<Mutex<Option<GpuInventory>>>,
}

#[derive(Debug)]
struct GpuInventory {
    count: usize,
    free: VecDeque<String>,
}

impl GpuInventory {
    fn of(ids: Vec<String>) -> GpuInventory {
        GpuInventory { count: ids.len(), free: ids.into() }
    }
}

/// The GPUs of one job. Dropping this frees them.
#[derive(Debug)]
pub(crate) struct GpuAllocation {
    gpus: GpuAllocator,
    pub(crate) ids: Vec<String>,
}

impl GpuAllocator {
    /// Creates an allocator of the GPUs that the configuration names, or else of those of the
    /// system. Leaves out GPUs that `CUDA_VISIBLE_DEVICES` hides from this process.
    pub(crate) fn new(config: &Config) -> GpuAllocator {
        let visible_here = std::env::var(VISIBLE).ok().map(|list| visible(&list));
        let known = match (config.gpus.clone(), visible_here) {
            (Some(named), Some(given)) => {
                Some(named.into_iter().filter(|id| given.contains(id)).collect())
            }
            (named, given) => named.or(given),
        };
        GpuAllocator { inventory: Arc::new(Mutex::new(known.map(GpuInventory::of))) }
    }

    /// Creates an allocator of these GPUs.
    #[cfg(any(test, feature = "docker"))]
    pub(crate) fn of(ids: Vec<String>) -> GpuAllocator {
        GpuAllocator { inventory: Arc::new(Mutex::new(Some(GpuInventory::of(ids)))) }
    }

    /// Returns the number of GPUs, free or not.
    ///
    /// # Errors
    /// The system can't list its GPUs, with a remedy.
    pub(crate) fn count(&self) -> Result<usize, BackendError> {
        self.with_inventory(|inventory| inventory.count)
    }

    fn with_inventory<T>(
        &self,
        use_it: impl FnOnce(&mut GpuInventory) -> T,
    ) -> Result<T, BackendError> {
        let mut place = self.inventory.lock();
        let inventory = match &mut *place {
            Some(inventory) => inventory,
            unknown => unknown.insert(GpuInventory::of(installed()?)),
        };
        Ok(use_it(inventory))
    }

    /// Takes `count` free GPUs.
    ///
    /// # Errors
    /// Fewer are free, with a remedy.
    pub(crate) fn take(&self, count: u32) -> Result<GpuAllocation, BackendError> {
        let asked = gpus_in_words(count);
        let count = count as usize;
        self.with_inventory(|GpuInventory { count: all, free }| {
            if free.len() < count {
                let (there, remedy) = match *all {
                    0 => ("none".to_string(), "run it on a host that has some"),
                    all => {
                        let there = format!("{all}, and {} of them are free", free.len());
                        (there, "use fewer processes")
                    }
                };
                return Err(refused!(
                    "it asks for {asked}, but this host has {there}: {remedy}, or name those that \
                     fiber may use in `gpus`"
                ));
            }
            let ids = free.drain(..count).collect();
            Ok(GpuAllocation { gpus: self.clone(), ids })
        })?
    }
}

impl Drop for GpuAllocation {
    fn drop(&mut self) {
        if let Some(inventory) = &mut *self.gpus.inventory.lock() {
            inventory.free.extend(self.ids.drain(..));
        }
    }
}

/// Parses the variable as CUDA does: entries after an invalid one do not count.
fn visible(list: &str) -> Vec<String> {
    let ids = list.split(',').map(str::trim);
    ids.take_while(|id| !id.is_empty() && !id.starts_with('-')).map(str::to_string).collect()
}

fn installed() -> Result<Vec<String>, BackendError> {
    const DRIVER: &str = "/proc/driver/nvidia/gpus";
    let count = match fs::read_dir(DRIVER) {
        Ok(gpus) => gpus.count(),
        // An empty list would be cached.
        Err(error) if shortage::is_shortage(&error) => {
            return Err(BackendError::unreadable(DRIVER, &error));
        }
        Err(_) => 0,
    };
    Ok((0..count).map(|index| index.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_belongs_to_one_job_at_a_time() {
        let gpus = GpuAllocator::of(vec!["0".into(), "1".into(), "2".into()]);
        let first = gpus.take(2).unwrap();
        let second = gpus.take(1).unwrap();
        assert_eq!((first.ids.join(","), second.ids.join(",")), ("0,1".into(), "2".into()));
        let refused = gpus.take(1).unwrap_err().to_string();
        assert!(refused.contains("this host has 3, and 0 of them are free"), "{refused}");
        let none = GpuAllocator::of(Vec::new()).take(1).unwrap_err().to_string();
        assert!(none.starts_with("it asks for 1 GPU, but this host has none: "), "{none}");
        drop(second);
        assert_eq!(gpus.take(1).unwrap().ids, ["2"]);
    }

    #[test]
    fn the_variable_is_parsed_as_cuda_parses_it() {
        assert_eq!(visible("0, GPU-8932f937,2"), ["0", "GPU-8932f937", "2"]);
        assert_eq!(visible("1,-1,2"), ["1"]);
        assert!(visible("").is_empty());
    }
}
