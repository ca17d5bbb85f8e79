//! Histories of volumes: clients against a tiny volume on a crashing disk, and forks at its events.

pub(crate) mod arrays;
pub(crate) mod between;
pub(crate) mod clients;
pub(crate) mod copies;
pub(crate) mod dealt;
pub(crate) mod disks;
pub(crate) mod epoch;
mod failing_array;
pub(crate) mod fault;
pub(crate) mod forks;
pub(crate) mod history;
pub(crate) mod image;
pub(crate) mod in_use;
pub(crate) mod incarnation;
pub(crate) mod kept;
mod large;
pub(crate) mod machine;
pub(crate) mod parameters;
pub(crate) mod parity;
pub(crate) mod plan;
pub(crate) mod recovery;
pub(crate) mod runs;
pub(crate) mod trouble;
pub(crate) mod verdict;
pub(crate) mod victims;
pub(crate) mod zones;
