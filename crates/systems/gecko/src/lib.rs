//! Gecko (Shin et al., FAST 2013): a chain of drives that writes like one quiet drive.
//!
//! A [`Chain`] is a block device on two to seven drives. All writes are appended to one log, which
//! fills one drive after the other. The drive at the tail gets appends alone; the others are read
//! and cleaned. So neither readers nor cleaning move the head that writes.
//!
//! A chain is a system on `manylogs_engine`, beside the volume and Everest's store: segments are
//! logs, records describe themselves, and recovery needs nothing but the records. The promises are
//! in `docs/semantics.md`, the bytes in `docs/format.md`, and the policies in `docs/gecko.md`.

mod admit;
mod cache;
mod chain;
mod cleaning;
mod differ;
mod error;
mod heaps;
mod join;
mod keeper;
mod limit;
mod link;
mod links;
mod member;
mod ondisk;
mod open;
mod pace;
mod pair;
mod policy;
mod read;
mod roster;
mod scrub;
mod sleep;
mod state;
mod summaries;
mod system;
mod tail;
mod victims;

pub use cache::{CacheError, CacheLabel, CacheOptions, FlashFigures};
pub use chain::{Chain, ChainFigures};
pub use error::ChainError;
pub use join::{Copied, HalfState, ReplaceError, ReplaceFault, Standing};
pub use limit::{export_limit, segments_in_all, summary_room, table_bytes_most};
pub use links::{Leaving, LinkError, LinkState, Loss, OnLoss};
pub use member::{ChainMember, LABEL_BYTES};
pub use open::{ChainFinding, ChainOptions, Depth, Examined, SegmentFound};
pub use policy::{ChainSettings, Cleaning, UnknownCleaning};
pub use roster::{Half, Joining, Roster};
pub use scrub::Scrubbed;
pub use sleep::{HalfPower, SleepSettings, Wake, WakeCause};
