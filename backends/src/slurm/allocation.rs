//! The allocation in which this process runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::commands;
use crate::batch::variable;
use crate::output::print_message;
use crate::{BackendError, Room};

/// The nodes that `sbatch` or `salloc` has given to this process.
#[derive(Debug)]
pub(super) struct Allocation {
    /// The id of its job.
    pub(super) job: String,
    pub(super) nodes: Vec<Node>,
    /// When Slurm ends it.
    pub(super) ends_at: Option<SystemTime>,
}

/// A node with what the allocation grants there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) cores: u32,
    /// In bytes; `None` if all of the node's may be used.
    pub(super) memory: Option<u64>,
    pub(super) gpus: u32,
}

impl Node {
    pub(super) fn room(&self) -> Room {
        Room { cpu: f64::from(self.cores), memory: self.memory, gpu: self.gpus }
    }
}

/// Returns the id of the job in whose allocation this process runs.
pub(super) fn job() -> Option<String> {
    variable("SLURM_JOB_ID").or_else(|| variable("SLURM_JOBID"))
}

/// Returns what is wrong if `srun` has started this program more than once. The first of them says
/// so for all.
fn several_heads(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let number = |name| variable(name)?.parse::<u32>().ok();
    let tasks = number("SLURM_STEP_NUM_TASKS").filter(|tasks| *tasks > 1)?;
    (number("SLURM_PROCID") == Some(0)).then(|| {
        format!(
            "fiber: warning: `srun` runs this program {tasks} times, each with workers of its own: \
             start it once, without `srun` or with `srun --nodes=1 --ntasks=1`; fiber starts its \
             workers on all nodes of the allocation\n"
        )
    })
}

/// Returns the number of cores of the allocation, as far as the environment says it.
pub(super) fn cores() -> Option<usize> {
    job()?;
    let cores = repeated(&variable("SLURM_JOB_CPUS_PER_NODE")?)?;
    Some(cores.iter().map(|cores| *cores as usize).sum())
}

impl Allocation {
    /// Finds the allocation of this process, if it runs in one.
    ///
    /// # Errors
    /// The environment is not Slurm's, or its commands fail.
    pub(super) async fn find() -> Result<Option<Allocation>, BackendError> {
        let Some(job) = job() else { return Ok(None) };
        if let Some(warning) = several_heads(variable) {
            print_message(warning).await;
        }
        let list = variable("SLURM_JOB_NODELIST")
            .or_else(|| variable("SLURM_NODELIST"))
            .ok_or("SLURM_JOB_ID is set, but not SLURM_JOB_NODELIST: this is no allocation")?;
        let names = commands::host_names(&list).await?;
        let memory = memory(&job).await;
        let nodes = nodes(names, variable, memory)?;
        let ends_at = match variable("SLURM_JOB_END_TIME").and_then(|time| time.parse().ok()) {
            Some(seconds) => Some(UNIX_EPOCH + Duration::from_secs(seconds)),
            None => match commands::time_left(&job).await {
                Ok(left) => left.map(|left| SystemTime::now() + left),
                Err(error) => {
                    tracing::warn!("the end of the allocation is not known: {error}");
                    None
                }
            },
        };
        Ok(Some(Allocation { job, nodes, ends_at }))
    }
}

/// The memory that Slurm grants a job, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    PerNode(u64),
    PerCore(u64),
    All,
}

/// Returns the memory of a job. `salloc` sets no variable for the default.
async fn memory(job: &str) -> Memory {
    let megabytes = |name| variable(name)?.parse::<u64>().ok();
    if let Some(size) = megabytes("SLURM_MEM_PER_NODE") {
        return per_node(size << 20);
    }
    if let Some(size) = megabytes("SLURM_MEM_PER_CPU") {
        return Memory::PerCore(size << 20);
    }
    match commands::job_fields(job).await {
        Ok(fields) => memory_in(&fields),
        Err(error) => {
            tracing::warn!("the memory of the allocation is not known: {error}");
            Memory::All
        }
    }
}

fn per_node(size: u64) -> Memory {
    if size == 0 { Memory::All } else { Memory::PerNode(size) }
}

fn memory_in(fields: &[(String, String)]) -> Memory {
    let size = |wanted: &str| {
        let (_, value) = fields.iter().find(|(name, _)| name == wanted)?;
        commands::size(value)
    };
    match (size("MinMemoryNode"), size("MinMemoryCPU")) {
        (Some(size), _) => per_node(size),
        (None, Some(size)) if size > 0 => Memory::PerCore(size),
        _ => Memory::All,
    }
}

/// Returns the nodes of these names with what the environment says about them.
fn nodes(
    names: Vec<String>,
    variable: impl Fn(&str) -> Option<String>,
    memory: Memory,
) -> Result<Vec<Node>, BackendError> {
    let cores = variable("SLURM_JOB_CPUS_PER_NODE").unwrap_or_else(|| "1".into());
    let cores = repeated(&cores).filter(|cores| !cores.is_empty()).ok_or_else(|| {
        format!("SLURM_JOB_CPUS_PER_NODE is `{cores}`, which is no list of cores such as `4(x2),2`")
    })?;
    let gpus = gpus(&variable);
    let node = |(index, name)| {
        let cores = cores[usize::min(index, cores.len() - 1)];
        let memory = match memory {
            Memory::PerNode(size) => Some(size),
            Memory::PerCore(size) => Some(size * u64::from(cores)),
            Memory::All => None,
        };
        Node { name, cores, memory, gpus }
    };
    Ok(names.into_iter().enumerate().map(node).collect())
}

/// Returns how many GPUs each node has for the job.
fn gpus(variable: &impl Fn(&str) -> Option<String>) -> u32 {
    let count = |name| variable(name)?.rsplit(':').next()?.parse().ok();
    let listed = || variable("SLURM_JOB_GPUS").map(|ids| ids.split(',').count() as u32);
    count("SLURM_GPUS_ON_NODE")
        .or_else(listed)
        .or_else(|| count("SLURM_GPUS_PER_NODE"))
        .unwrap_or(0)
}

/// Parses `4(x2),2` as 4, 4, 2.
fn repeated(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (value, times) = match part.split_once("(x") {
            Some((value, times)) => (value, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        all.extend(std::iter::repeat_n(value.trim().parse::<u32>().ok()?, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], memory: Memory) -> Vec<Node> {
        let names = ["a", "b", "c"].map(String::from).into();
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        nodes(names, find, memory).unwrap()
    }

    #[test]
    fn nodes_have_the_room_that_slurm_grants() {
        let nodes = of(&[("SLURM_JOB_CPUS_PER_NODE", "4(x2),2")], Memory::PerCore(10));
        let rooms: Vec<_> = nodes.iter().map(|node| (node.cores, node.memory, node.gpus)).collect();
        assert_eq!(rooms, [(4, Some(40), 0), (4, Some(40), 0), (2, Some(20), 0)]);
        let eight = [("SLURM_JOB_CPUS_PER_NODE", "8(x3)"), ("SLURM_GPUS_ON_NODE", "2")];
        let nodes = of(&eight, Memory::PerNode(100));
        assert_eq!(nodes[2].room(), Room { cpu: 8.0, memory: Some(100), gpu: 2 });
        let nodes = of(&[("SLURM_JOB_GPUS", "0,1,3")], Memory::All);
        assert_eq!((nodes[0].cores, nodes[0].memory, nodes[0].gpus), (1, None, 3));
    }

    #[test]
    fn the_first_of_several_heads_says_so() {
        let told = |tasks: &str, process: &str| {
            several_heads(|name| match name {
                "SLURM_STEP_NUM_TASKS" => Some(tasks.to_string()),
                "SLURM_PROCID" => Some(process.to_string()),
                _ => None,
            })
        };
        assert!(told("2", "0").unwrap().contains("2 times"));
        assert_eq!((told("2", "1"), told("1", "0")), (None, None));
        assert_eq!(several_heads(|_| None), None);
    }

    #[test]
    fn the_memory_of_a_job_is_parsed() {
        let of = |name: &str, value: &str| memory_in(&[(name.into(), value.into())]);
        assert_eq!(of("MinMemoryCPU", "1000M"), Memory::PerCore(1000 << 20));
        assert_eq!(of("MinMemoryNode", "2G"), Memory::PerNode(2 << 30));
        assert_eq!(of("MinMemoryNode", "1.50G"), Memory::PerNode(3 << 29));
        assert_eq!(of("MinMemoryNode", "0"), Memory::All);
        assert_eq!(of("Other", "1"), Memory::All);
    }

    #[test]
    fn a_list_of_cores_is_parsed() {
        assert_eq!(repeated("4(x2),2,1(x3)"), Some(vec![4, 4, 2, 1, 1, 1]));
        assert_eq!(repeated("many"), None);
        assert_eq!(repeated("4(x"), None);
    }
}
