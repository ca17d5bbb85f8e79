//! The caller of a request: the kernel names a user, a group and a process; `/proc` has the
//! process's other groups.

use std::fs;

use manylogs_ext4::Credentials;
use manylogs_fuse::Context;

/// The caller of a request. It waits for the answer, so that `/proc` still describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Asker {
    pub(crate) const fn of(context: Context) -> Self {
        Self { uid: context.uid, gid: context.gid, pid: context.pid }
    }

    /// The asker in the file system's terms; `in_group` is [`Asker::is_in`].
    pub(crate) fn credentials<'c>(&self, in_group: &'c dyn Fn(u32) -> bool) -> Credentials<'c> {
        Credentials { uid: self.uid, in_group }
    }

    /// Whether the asker is in a group, or root. False if `/proc` cannot be read.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        let status = || fs::read_to_string(format!("/proc/{}/status", self.pid));
        self.uid == 0 || self.gid == gid || status().is_ok_and(|status| lists(&status, gid))
    }
}

/// Whether a group is among those that the text of `/proc/PID/status` lists.
fn lists(status: &str, gid: u32) -> bool {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let mut groups = groups.unwrap_or_default().split_ascii_whitespace();
    groups.any(|group| group.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use super::lists;

    #[test]
    fn groups_are_read_from_the_process() {
        let status =
            "Name:\tdd\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\nGroups:\t7 80 900 \nNSpid:\t8\n";
        assert!([7, 80, 900].into_iter().all(|gid| lists(status, gid)));
        assert!([5, 6, 8, 9].into_iter().all(|gid| !lists(status, gid)));
        assert!(!lists("", 0) && !lists("Groups:\t\n", 0));
    }
}
