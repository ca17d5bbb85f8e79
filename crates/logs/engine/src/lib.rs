//! The engine under every log-structured system.
//!
//! The store of `manylogs_logstore` is data structures and does no I/O. The engine owns a store and
//! its devices, the [`Member`]s, and does what every system needs: it commits records, opens logs,
//! sets sequences aside, reads from logs, moves and renews their versions, raises the floor, takes
//! failed logs out of use, opens and recovers.
//!
//! A [`System`] stands on it and decides what only the system knows: where a record goes, what is
//! due, how a log is cleaned, and what follows when something became durable. The volume of the
//! crate `manylogs` and the circular store of `manylogs_everest` are systems.

mod commit;
mod doubt;
mod engine;
mod floor;
mod member;
mod members;
mod opener;
mod patience;
mod phase;
mod read;
mod reads;
mod recover;
mod relocate;
mod root;
mod sequences;
mod system;
mod wait;

pub use commit::{begin_epoch, run_committer, submit_record};
pub use doubt::{InDoubt, all_written};
pub use engine::Engine;
pub use floor::{raise_floor, raise_floor_to_oldest};
pub use member::{Member, Reader};
pub use members::Members;
pub use opener::run_opener;
pub use patience::PatientReads;
pub use phase::{Phase, PhaseProbe, Written};
pub use read::{Source, begin_read, check_copies, end_read, read_begun, read_log};
pub use recover::{Scanner, retire_failed};
pub use relocate::{Moved, Unmoved, live_in, move_log, renew_log};
pub use root::{
    FoundRoot, RootSlot, find_root, lose_member, read_copy, update_root, write_root, write_twice,
};
pub use sequences::{begin_incarnation, reserve_sequences};
pub use system::{Shared, System};
pub use wait::{wait_done, wait_durable, wait_until};
