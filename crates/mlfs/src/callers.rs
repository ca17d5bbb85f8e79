//! What the kernel does not say of those who call.

use manylogs_fuse::Context;

/// Who asks for something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pid: u32,
    uid: u32,
    gid: u32,
}

impl Caller {
    pub(crate) fn of(context: Context) -> Self {
        Self { pid: context.pid, uid: context.uid, gid: context.gid }
    }

    /// Whether the caller may let programs run with a group: it is one of the caller's, or the
    /// caller is root.
    pub(crate) fn may_set_gid(self, gid: u32) -> bool {
        if self.uid == 0 || self.gid == gid {
            return true;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        status.is_ok_and(|status| groups(&status).any(|group| group == gid))
    }
}

/// The groups that a status names.
fn groups(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_a_status() {
        let status = "Name:\tcat\nGid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nNStgid:\t9\n";
        assert_eq!(groups(status).collect::<Vec<_>>(), [4, 24, 1000]);
        assert_eq!(groups("Name:\tcat\n").count(), 0);
    }
}
