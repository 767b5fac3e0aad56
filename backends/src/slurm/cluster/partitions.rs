//! The partitions of a cluster, to refuse early what never starts.

use super::super::commands;
use super::job_options::JobOptions;
use crate::BackendError;

/// A partition, as `sinfo` lists it.
#[derive(Debug, PartialEq, Eq)]
struct Partition {
    name: String,
    is_default: bool,
    nodes: u32,
    /// The longest time of a job in minutes, if there is one.
    minutes: Option<u64>,
}

/// Checks that the partition of a request exists, and has its nodes and time.
pub(super) async fn check(allocation: &JobOptions) -> Result<(), BackendError> {
    let listed = commands::run("sinfo", &["--noheader", "--format", "%P|%D|%l"]).await?;
    let partitions = listed.lines().filter_map(parse).collect();
    check_in(&joined(partitions), allocation)
}

fn parse(line: &str) -> Option<Partition> {
    let mut fields = line.split('|').map(str::trim);
    let name = fields.next()?;
    let nodes = fields.next()?.parse().ok()?;
    let minutes = commands::time(fields.next()?).map(|limit| limit.as_secs() / 60);
    let is_default = name.ends_with('*');
    Some(Partition { name: name.trim_end_matches('*').into(), is_default, nodes, minutes })
}

/// Adds up the lines of a partition: there is one for each state of its nodes.
fn joined(lines: Vec<Partition>) -> Vec<Partition> {
    let mut partitions: Vec<Partition> = Vec::new();
    for line in lines {
        match partitions.iter_mut().find(|partition| partition.name == line.name) {
            Some(known) => known.nodes += line.nodes,
            None => partitions.push(line),
        }
    }
    partitions
}

fn check_in(partitions: &[Partition], allocation: &JobOptions) -> Result<(), BackendError> {
    // A list of partitions is for Slurm to choose from.
    let wanted = match &allocation.partition {
        Some(name) if name.contains(',') => return Ok(()),
        Some(name) => partitions.iter().find(|partition| partition.name == *name),
        // The environment may name another one.
        None if std::env::var_os("SBATCH_PARTITION").is_some() => return Ok(()),
        None => partitions.iter().find(|partition| partition.is_default),
    };
    let Some(wanted) = wanted else {
        let names: Vec<&str> = partitions.iter().map(|partition| partition.name.as_str()).collect();
        return match (&allocation.partition, names.is_empty()) {
            // `sinfo` may hide partitions, or have other words.
            (_, true) | (None, _) => Ok(()),
            (Some(name), false) => Err(refused!(
                "there is no partition `{name}`: choose one of {} with --partition",
                names.join(", ")
            )),
        };
    };
    if let Some(nodes) = allocation.nodes.filter(|nodes| *nodes > wanted.nodes) {
        return Err(refused!(
            "--nodes {nodes} is more than the {} of partition `{}`: ask for fewer, or for another \
             partition with --partition",
            wanted.nodes,
            wanted.name
        ));
    }
    let asked = allocation.time.map(|time| time.as_secs().div_ceil(60));
    if let (Some(asked), Some(limit)) = (asked, wanted.minutes)
        && asked > limit
    {
        return Err(refused!(
            "--time {asked}m is more than the {limit}m of partition `{}`: ask for less, or for \
             another partition with --partition",
            wanted.name
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_partition_does_not_have_is_refused() {
        let lines = ["main*|3|infinite", "main*|1|infinite", "brief|4|1:00"];
        let partitions = joined(lines.iter().filter_map(|line| parse(line)).collect());
        assert_eq!(partitions.len(), 2);
        let problem = |change: &dyn Fn(&mut JobOptions)| {
            let mut allocation = JobOptions::default();
            change(&mut allocation);
            check_in(&partitions, &allocation).map_or_else(String::from, |()| String::new())
        };
        assert_eq!(problem(&|_| {}), "");
        assert_eq!(problem(&|allocation| allocation.nodes = Some(4)), "");
        let many = problem(&|allocation| allocation.nodes = Some(5));
        assert!(many.contains("more than the 4 of partition `main`"), "{many}");
        let none = problem(&|allocation| allocation.partition = Some("gpu".into()));
        assert!(none.contains("no partition `gpu`") && none.contains("main, brief"), "{none}");
        let long = problem(&|allocation| {
            allocation.partition = Some("brief".into());
            allocation.time = Some(Duration::from_secs(121));
        });
        assert!(long.contains("--time 3m is more than the 1m"), "{long}");
    }
}
