//! The report: one self-contained HTML file for a reader who has not read the paper.

mod html;

pub use html::html;
