//! Differences that are meant, or that a program cannot avoid behind FUSE: each with its reason.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::call::{Of, Step};
use crate::perform::World;
use crate::seen::{Change, Differs};

/// Where something is different.
pub(crate) struct Case<'c> {
    pub(crate) step: &'c Step,
    /// The file; none for what a call answered.
    pub(crate) subject: Option<&'c Of>,
    /// What became of it in the kernel's world.
    pub(crate) kernel: Option<Change>,
    /// The kernel's.
    pub(crate) world: &'c World,
}

/// A difference that is meant.
struct Known {
    name: &'static str,
    applies: fn(&Case<'_>, &Differs) -> bool,
}

const KNOWN: [Known; 0] = [];

/// The name of the known difference that this is one of.
pub(crate) fn reason(case: &Case<'_>, differs: &Differs) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.applies)(case, differs)).map(|known| known.name)
}

thread_local! {
    static COUNTS: RefCell<BTreeMap<&'static str, u64>> = RefCell::default();
}

pub(crate) fn count(name: &'static str) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(name).or_default() += 1);
}

/// How often each was met since the last time that this was asked.
pub(crate) fn counts() -> BTreeMap<&'static str, u64> {
    COUNTS.take()
}
