//! The report: one HTML file that needs nothing else, for a reader who never saw the paper.

mod html;

pub use html::html;
