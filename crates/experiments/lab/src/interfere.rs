//! Small durable writes beside streams, in virtual time: what each costs the other.
//!
//! The Manylogs paper measures a file system's journal beside streams (Fig. 1 and 2); this measures
//! the same at block level, where the drive's behaviour can be set and explained. See [`run_all`].

mod case;
mod drive_did;
mod fours;
mod page;
mod results;
mod run;
mod stream;
mod sync;
mod table;

pub use case::{
    Bursts, Case, Place, StreamKind, StreamLoad, SyncLoad, SyncMode, SyncRate, UnfitStream,
    UnknownName,
};
pub use drive_did::DriveDid;
pub use page::html;
pub use results::{CaseResult, Interference, SyncMillis};
pub use run::{CaseFigures, InterfereError, measure_one, run_all};
pub use table::text;
