//! Looking at a volume, for faults and for people.

pub(crate) mod inspect;
pub(crate) mod scrub;
