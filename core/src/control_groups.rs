//! The memory limits of this process's control groups, of version 1 and 2.

use std::path::{Path, PathBuf};

use crate::read_lossy;

const GROUPS: &str = "/sys/fs/cgroup";

/// Returns the least memory limit of this process's control group and of those above it.
pub fn memory_limit() -> Option<u64> {
    least(Group::limit)
}

/// Returns how many bytes the memory limits of these groups leave.
pub fn memory_room() -> Option<u64> {
    least(Group::room)
}

fn least(figure: impl Fn(&Group) -> Option<u64>) -> Option<u64> {
    let own = read_lossy("/proc/self/cgroup").ok()?;
    groups(&own, Path::new(GROUPS)).iter().filter_map(figure).min()
}

/// Returns the groups that limit the memory of a process, from its `/proc/PID/cgroup`: its own and
/// all above. In a container, the path may be that of the host, of which only the top is visible.
fn groups(own: &str, mounted: &Path) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (mounted, names) = match controllers {
            "" => (mounted.to_path_buf(), &V2),
            _ if controllers.split(',').any(|one| one == "memory") => (mounted.join("memory"), &V1),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        groups.extend(path.ancestors().map(|path| Group { folder: mounted.join(path), names }));
    }
    groups
}

/// A control group, and the names of its files.
struct Group {
    folder: PathBuf,
    names: &'static Names,
}

struct Names {
    limit: &'static str,
    used: &'static str,
    /// The lines of `memory.stat` with the size of cached files.
    files: [&'static str; 2],
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_active_file ", "total_inactive_file "],
};
const V2: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    files: ["active_file ", "inactive_file "],
};

impl Group {
    fn read(&self, name: &str) -> Option<String> {
        read_lossy(self.folder.join(name)).ok()
    }

    /// Without a limit, version 2 says `max`, and version 1 a number that no machine has.
    fn limit(&self) -> Option<u64> {
        number(&self.read(self.names.limit)?).filter(|limit| *limit < 1 << 62)
    }

    /// The kernel gives up cached files for more memory.
    fn room(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, number(&self.read(self.names.used)?)?);
        let stat = self.read("memory.stat").unwrap_or_default();
        let size = |name: &&str| stat.lines().find_map(|line| number(line.strip_prefix(name)?));
        let files: u64 = self.names.files.iter().filter_map(size).sum();
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn write(&self, group: &str, name: &str, text: &str) {
            let group = self.0.path().join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(name), text).unwrap();
        }

        fn limit_and_room(&self, own: &str) -> (Option<u64>, Option<u64>) {
            let groups = groups(own, self.0.path());
            let least = |figure: fn(&Group) -> Option<u64>| groups.iter().filter_map(figure).min();
            (least(Group::limit), least(Group::room))
        }
    }

    #[test]
    fn the_tightest_control_group_decides_and_cached_files_are_room() {
        let mounted = Mounted(tempfile::tempdir().unwrap());
        mounted.write("a/b", "memory.max", "max\n");
        mounted.write("a/b", "memory.current", "10\n");
        mounted.write("a", "memory.max", "1000\n");
        mounted.write("a", "memory.current", "900\n");
        assert_eq!(mounted.limit_and_room("0::/a/b\n"), (Some(1000), Some(100)));
        let stat = "anon 600\nfile 300\nactive_file 200\ninactive_file 100\n";
        mounted.write("a", "memory.stat", stat);
        assert_eq!(mounted.limit_and_room("0::/a/b\n"), (Some(1000), Some(400)));
        mounted.write("", "memory.max", "500\n");
        mounted.write("", "memory.current", "300\n");
        assert_eq!(mounted.limit_and_room("0::/a/b\n"), (Some(500), Some(200)));
        assert_eq!(mounted.limit_and_room("0::/none\n"), (Some(500), Some(200)));
    }

    #[test]
    fn groups_of_version_1_count_too() {
        let mounted = Mounted(tempfile::tempdir().unwrap());
        mounted.write("memory/job/7", "memory.limit_in_bytes", "9223372036854771712\n");
        mounted.write("memory/job", "memory.limit_in_bytes", "1000\n");
        mounted.write("memory/job", "memory.usage_in_bytes", "700\n");
        mounted.write("memory/job", "memory.stat", "total_inactive_file 200\n");
        let own = "5:cpu,cpuacct:/x\n4:memory,blkio:/job/7\n0::/\n";
        assert_eq!(mounted.limit_and_room(own), (Some(1000), Some(500)));
        assert_eq!(mounted.limit_and_room("1:name=systemd:/job\n"), (None, None));
    }
}
