//! The report: one HTML file that needs nothing else, for a reader who never saw the paper.

mod headline;
mod html;

pub use headline::{Headline, headline};
pub use html::html;
