//! How much memory a mount may use if no option says it.

use std::fs;
use std::path::Path;

use manylogs_ext4::Memory;

/// One part in so many of the machine's memory, or of the control group's limit if that is less.
const PART: u64 = 16;

/// A sixteenth of the memory that this process may use, but not less or more than is useful.
pub(crate) fn usual_memory() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|table| total(&table));
    let group = read(Path::new("/proc/self/cgroup"))
        .and_then(|groups| limit(&groups, Path::new("/sys/fs/cgroup"), read));
    let may_use = machine.into_iter().chain(group).min();
    let usual = may_use.map_or(Memory::USUAL, |bytes| bytes / PART);
    usual.clamp(Memory::LEAST, Memory::USUAL)
}

/// Bytes of the whole machine's memory, from `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let mut words = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?.split_whitespace();
    words.nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the process's control group and the groups above it (control groups v2 only).
fn limit(groups: &str, root: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(group);
    let above = group.ancestors().take_while(|dir| dir.starts_with(root));
    let limits = above.filter_map(|dir| read(&dir.join("memory.max"))?.trim().parse().ok());
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        assert_eq!(total("MemTotal:       24660004 kB\nMemFree: 1 kB\n"), Some(24_660_004 << 10));
        assert_eq!(total("nothing"), None);
        let root = Path::new("/groups");
        let read = |path: &Path| match path.to_str()? {
            "/groups/a/b/memory.max" => Some("max\n".to_owned()),
            "/groups/a/memory.max" => Some("1000\n".to_owned()),
            "/groups/memory.max" => Some("2000\n".to_owned()),
            "/memory.max" => Some("1\n".to_owned()),
            _ => None,
        };
        assert_eq!(limit("1:x:/y\n0::/a/b/c\n", root, read), Some(1000));
        assert_eq!(limit("0::/\n", root, read), Some(2000));
        assert_eq!(limit("4:memory:/a\n", root, read), None);
    }
}
