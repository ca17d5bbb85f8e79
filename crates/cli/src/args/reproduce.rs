//! `manylogs reproduce`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// The paper: manylogs or everest. All papers when not given.
    pub(crate) paper: Option<String>,
    /// Only these figures, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Say what there is, what it takes, and what is not reproduced and why.
    #[arg(long)]
    pub(crate) list: bool,
    /// How much runs, from 1 (the least, some minutes) to 10 (as the papers have it).
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=10))]
    pub(crate) scale: u32,
    /// A folder with SNIA's Microsoft Production Server traces, one folder each. What is not there
    /// is generated.
    #[arg(long, value_name = "DIR")]
    pub(crate) traces: Option<PathBuf>,
    /// Take the figures of this folder (one folder each paper, one TOML file each figure), not
    /// those of the program.
    #[arg(long, value_name = "DIR")]
    pub(crate) figures: Option<PathBuf>,
    /// Write all plots to this HTML file; OUT/figures.html when not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the claims to this JSON file; OUT/claims.json when not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the document of the paper to this Markdown file.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// The folder of the results. Runs that are finished there are not run again.
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    pub(crate) out: PathBuf,
    /// Runs at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
}
