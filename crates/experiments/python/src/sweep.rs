//! Sweeps.

use std::path::Path;

use manylogs_lab::sweep::{Sweep, columns, jobs, run_jobs};
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::interrupt::free_showing;
use crate::table::Table;

/// Runs the sweep described by `toml`, in the form of a file of `manylogs sweep`. Returns one row
/// for each run, and the reasons why runs have no result. `show` is called with the number of
/// requests replayed so far.
#[pyfunction]
#[pyo3(signature = (toml, threads, show=None))]
pub(crate) fn sweep(
    py: Python<'_>,
    toml: &str,
    threads: Option<usize>,
    show: Option<Py<PyAny>>,
) -> PyResult<(Table, Vec<String>)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(cores);
    free_showing(py, show, |progress| {
        let sweep = Sweep::parse(toml, Path::new("")).map_err(Failure::input)?;
        let jobs = jobs(&sweep).map_err(Failure::input)?;
        let (rows, left_out) = run_jobs(&jobs, progress, threads);
        let left_out = left_out.iter().map(ToString::to_string).collect();
        Ok((Table::new(columns(&rows))?, left_out))
    })
}
