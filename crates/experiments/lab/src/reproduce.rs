//! Figures of the papers: each is data in a file under `figures/`, which says what runs, what the
//! paper published, and what is claimed.
//!
//! ```text
//!   figures/manylogs/fig2a.toml     Figure        file.rs, library.rs
//!        |
//!      plan                         Planned: runs with keys     plan.rs, parts.rs
//!        |
//!      Run::measure                 metrics of one run          work.rs
//!        |
//!      Cells                        series x metric             cells.rs
//!        |
//!      judge                        claims, paper beside ours   claims.rs, judged.rs
//!        |
//!      text, Markdown, HTML, JSON
//! ```

mod applications;
mod axes;
mod cells;
mod chains;
mod claims;
mod cleaner;
mod columns;
mod episodes;
mod file;
mod folder;
mod html;
mod judged;
mod lent;
mod library;
mod markdown;
mod part;
mod parts;
mod plan;
mod plot;
mod programs;
mod random;
mod text;
mod trees;
mod work;

pub use cells::{Cells, Metrics};
pub use claims::{Standing, Verdict};
pub use columns::raw;
pub use file::{Claim, Figure, Paper};
pub use folder::{Folder, Found};
pub use html::page;
pub use judged::{JudgedFigure, Report, judge};
pub use library::{Chosen, chosen, papers, use_folder};
pub use markdown::markdown;
pub use part::Part;
pub use plan::{PlanError, Planned, Scale, plan};
pub use text::{figure_text, listing};
pub use work::{Context, Run, RunError};
