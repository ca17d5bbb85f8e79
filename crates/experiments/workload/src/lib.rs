//! Block traces: readers, recorder, windows, mixes and statistics.
//!
//! [`open`] reads any of the known [formats](Format) as a [`TraceSource`]: requests in order of
//! arrival, streamed, so that memory does not grow with the length of a trace. Each preparation
//! before a replay (windows, re-rating, fitting, mixing, repeating) is itself a source over
//! sources.

mod bytes;
mod cache;
mod detect;
mod error;
mod export;
mod format;
mod fuzz;
mod input;
mod lines;
mod merge;
mod open;
mod order;
pub mod programs;
pub mod record;
mod request;
mod select;
mod spread;
pub mod stat;
mod tar;
mod text;
pub mod transform;
mod zipf;

pub use cache::RequestCache;
pub use error::{BadRecord, IoFailure, Position, TraceError, UnknownFormat};
pub use export::{Losses, TraceWriter};
pub use format::blktrace_set::files_of;
pub use format::own::{RecordingInfo, RecordingWriter, TraceClock, read_info};
pub use fuzz::fuzz_one;
pub use merge::Merge;
pub use open::{
    BlockEvent, Devices, Echoes, Format, MobileDiscards, OpenOptions, TimeUnit, of_devices, open,
    open_reader,
};
pub use request::{BoxedSource, SourceCounts, TraceOp, TraceRequest, TraceSource};
pub use stat::TraceStats;
pub use zipf::{Zipf, shuffled};
