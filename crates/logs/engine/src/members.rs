//! The members of a system, by number.

use std::rc::Rc;

use manylogs_block::BlockDevice;
use manylogs_logstore::store::Device;

use crate::member::Member;

/// The devices that a system lives on, in the order of their numbers: at least one.
#[derive(Clone, Debug)]
pub struct Members(Vec<Member>);

impl Members {
    /// A single device.
    #[must_use]
    pub fn one(member: Member) -> Self {
        Self(vec![member])
    }

    /// Several devices, in the order of their numbers.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn of_all(members: Vec<Member>) -> Self {
        assert!(!members.is_empty(), "a system has a member");
        Self(members)
    }

    /// The member with this number.
    #[must_use]
    pub fn of(&self, device: Device) -> &Member {
        &self.0[usize::from(device.0)]
    }

    /// All members, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.iter()
    }

    /// Number of members.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The devices, for callers that only read.
    #[must_use]
    pub fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        self.0.iter().map(|member| Rc::clone(member.device())).collect()
    }
}
