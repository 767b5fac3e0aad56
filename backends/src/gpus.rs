//! Graphics processors: which there are, and who has them.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;

use fiber_core::{Config, shortage};
use parking_lot::Mutex;

/// What CUDA takes for the processors that a process may use.
pub(crate) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Hands the graphics processors that this process may use out to its jobs, each to one at a time.
#[derive(Clone, Debug)]
pub(crate) struct GpuAllocator(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Not known before somebody wants one, unless the configuration or the environment names them.
    inventory: Mutex<Option<GpuInventory>>,
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

/// Processors that a job has. They are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct GpuAllocation {
    gpus: GpuAllocator,
    pub(crate) ids: Vec<String>,
}

impl GpuAllocator {
    /// Those that the configuration names or, without that, the system; and of them only those that
    /// this process was given itself.
    pub(crate) fn new(config: &Config) -> GpuAllocator {
        let given = std::env::var(VISIBLE).ok().map(|list| visible(&list));
        let known = match (config.gpus.clone(), given) {
            (Some(named), Some(given)) => {
                Some(named.into_iter().filter(|id| given.contains(id)).collect())
            }
            (named, given) => named.or(given),
        };
        GpuAllocator(Arc::new(Shared { inventory: Mutex::new(known.map(GpuInventory::of)) }))
    }

    /// None that this process knows of.
    #[cfg(feature = "docker")]
    pub(crate) fn empty() -> GpuAllocator {
        GpuAllocator::of(Vec::new())
    }

    #[cfg(any(test, feature = "docker"))]
    fn of(ids: Vec<String>) -> GpuAllocator {
        GpuAllocator(Arc::new(Shared { inventory: Mutex::new(Some(GpuInventory::of(ids))) }))
    }

    /// How many there are, free or not.
    ///
    /// # Errors
    /// That the system does not say, and what to do.
    #[cfg(feature = "docker")]
    pub(crate) fn count(&self) -> Result<usize, String> {
        self.with_inventory(|inventory| inventory.count)
    }

    fn with_inventory<T>(&self, use_it: impl FnOnce(&mut GpuInventory) -> T) -> Result<T, String> {
        let mut place = self.0.inventory.lock();
        let inventory = match &mut *place {
            Some(inventory) => inventory,
            unknown => unknown.insert(GpuInventory::of(installed()?)),
        };
        Ok(use_it(inventory))
    }

    /// Takes `count` of them.
    ///
    /// # Errors
    /// That there are fewer, and what to do.
    pub(crate) fn take(&self, count: u32) -> Result<GpuAllocation, String> {
        let count = count as usize;
        self.with_inventory(|inventory| {
            if inventory.free.len() < count {
                return Err(format!(
                    "it is to have {count} graphics processor{}, but this host has {}, of which {} are free: use fewer \
                     processes, or name those that fiber may use in `gpus`",
                    if count == 1 { "" } else { "s" },
                    inventory.count,
                    inventory.free.len(),
                ));
            }
            let ids = inventory.free.drain(..count).collect();
            Ok(GpuAllocation { gpus: self.clone(), ids })
        })?
    }
}

impl Drop for GpuAllocation {
    fn drop(&mut self) {
        if let Some(inventory) = &mut *self.gpus.0.inventory.lock() {
            inventory.free.extend(self.ids.drain(..));
        }
    }
}

/// As CUDA reads the variable: what follows an invalid entry does not count.
fn visible(list: &str) -> Vec<String> {
    let ids = list.split(',').map(str::trim);
    ids.take_while(|id| !id.is_empty() && !id.starts_with('-')).map(str::to_string).collect()
}

fn installed() -> Result<Vec<String>, String> {
    const DRIVER: &str = "/proc/driver/nvidia/gpus";
    let count = match fs::read_dir(DRIVER) {
        Ok(gpus) => gpus.count(),
        // To find none for now would be kept.
        Err(error) if shortage::is_shortage(&error) => {
            return Err(format!("{DRIVER} can't be read: {}", shortage::explain(&error)));
        }
        Err(_) => 0,
    };
    Ok((0..count).map(|index| index.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_is_given_to_one_job_at_a_time() {
        let gpus = GpuAllocator::of(vec!["0".into(), "1".into(), "2".into()]);
        let first = gpus.take(2).unwrap();
        let second = gpus.take(1).unwrap();
        assert_eq!((first.ids.join(","), second.ids.join(",")), ("0,1".into(), "2".into()));
        let refused = gpus.take(1).unwrap_err();
        assert!(refused.contains("this host has 3, of which 0 are free"), "{refused}");
        drop(second);
        assert_eq!(gpus.take(1).unwrap().ids, ["2"]);
    }

    #[test]
    fn the_variable_is_read_as_cuda_reads_it() {
        assert_eq!(visible("0, GPU-8932f937,2"), ["0", "GPU-8932f937", "2"]);
        assert_eq!(visible("1,-1,2"), ["1"]);
        assert!(visible("").is_empty());
    }
}
