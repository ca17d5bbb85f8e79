//! The layout of logs.

use manylogs_ext4::{BLOCK_BYTES, GroupNo, Run, Wanted};

/// Blocks of a MiB.
const MIB_BLOCKS: u32 = (1 << 20) / 4096;

/// The distance of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// One log in this number of groups.
    Groups(u32),
    /// One log in this number of bytes, rounded to whole groups.
    Bytes(u64),
}

/// The wanted number and length of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLayout {
    /// Their distance. Each lies at the end of the last group of its stretch.
    pub spacing: Spacing,
    /// Length of each log; a group without a free run of the least length has none.
    pub wanted: Wanted,
}

impl Default for LogLayout {
    /// A log of 10 MiB, at least 4 MiB, at the end of every eighth group: 10 MiB in a GiB.
    fn default() -> Self {
        let wanted = Wanted { most: 10 * MIB_BLOCKS, least: 4 * MIB_BLOCKS };
        Self { spacing: Spacing::Groups(8), wanted }
    }
}

impl LogLayout {
    /// The groups at whose end a log is looked for: the last of each stretch, and the last of all.
    pub(super) fn groups(
        &self,
        blocks_per_group: u32,
        groups: u32,
    ) -> impl Iterator<Item = GroupNo> {
        let step = match self.spacing {
            Spacing::Groups(step) => step,
            Spacing::Bytes(bytes) => {
                let group = u64::from(blocks_per_group) * BLOCK_BYTES as u64;
                u32::try_from((bytes + group / 2) / group).unwrap_or(u32::MAX)
            }
        };
        let step = step.max(1);
        let is_last = move |group: &u32| (group + 1).is_multiple_of(step) || group + 1 == groups;
        (0..groups).filter(is_last).map(GroupNo)
    }

    /// Whether runs could have been picked by this layout: each in a group of its own, in order.
    pub(super) fn fits(&self, runs: &[Run], blocks_per_group: u32, groups: u32) -> bool {
        let mut places = self.groups(blocks_per_group, groups);
        let group = |run: &Run| run.start.0 / u64::from(blocks_per_group);
        runs.iter().all(|run| {
            let fits = (self.wanted.least.max(1)..=self.wanted.most).contains(&run.blocks);
            fits && places.any(|place| u64::from(place.0) == group(run))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylogs_ext4::BlockNo;

    fn groups(spacing: Spacing, groups: u32) -> Vec<u32> {
        let layout = LogLayout { spacing, ..LogLayout::default() };
        layout.groups(32_768, groups).map(|group| group.0).collect()
    }

    #[test]
    fn logs_are_at_the_end_of_stretches_and_at_the_end() {
        assert_eq!(groups(Spacing::Groups(8), 20), [7, 15, 19]);
        assert_eq!(groups(Spacing::Groups(8), 16), [7, 15]);
        assert_eq!(groups(Spacing::Bytes(128 << 20), 3), [0, 1, 2]);
        assert_eq!(groups(Spacing::Bytes(300 << 20), 5), [1, 3, 4]);
        assert_eq!(groups(Spacing::Bytes(1), 2), [0, 1]);
        assert_eq!(groups(Spacing::Bytes(u64::MAX >> 1), 2), [1]);
    }

    #[test]
    fn runs_of_another_layout_do_not_fit() {
        let layout = LogLayout::default();
        let run = |group: u64, blocks| Run { start: BlockNo(group * 32_768 + 5), blocks };
        assert!(layout.fits(&[run(7, 2560), run(15, 1024)], 32_768, 20));
        assert!(layout.fits(&[run(7, 2560), run(19, 1024)], 32_768, 20));
        assert!(!layout.fits(&[run(15, 2560), run(7, 2560)], 32_768, 20));
        assert!(!layout.fits(&[run(7, 2561)], 32_768, 20));
        assert!(!layout.fits(&[run(7, 1000)], 32_768, 20));
        assert!(!layout.fits(&[run(6, 2560)], 32_768, 20));
        assert!(!layout.fits(&[run(7, 2560), run(7, 2560)], 32_768, 20));
    }
}
