//! Inspecting a volume: reports for people, and the search for faults.

pub(crate) mod inspect;
pub(crate) mod scrub;
