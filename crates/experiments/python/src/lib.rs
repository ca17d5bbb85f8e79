//! The Python package `manylogs`: the program's traces, replays, advice and sweeps.
//!
//! This crate is the native part. The interface for users, its documentation and its types lie in
//! `crates/experiments/python/python/manylogs`, which calls what is registered here.

mod capsule;
mod drive;
mod failure;
mod fleet;
mod interrupt;
mod options;
mod own;
mod replay;
mod rows;
mod sweep;
mod table;
mod trace;

use pyo3::prelude::*;

/// The native part of the package.
#[pymodule]
fn _manylogs(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<drive::Drive>()?;
    module.add_class::<fleet::Runs>()?;
    module.add_class::<fleet::Measured>()?;
    module.add_class::<own::Logs>()?;
    module.add_class::<own::Write>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<trace::Trace>()?;
    module.add_function(wrap_pyfunction!(replay::replay, module)?)?;
    module.add_function(wrap_pyfunction!(replay::advise, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep, module)?)?;
    module.add_function(wrap_pyfunction!(drive::recorded, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::advice_replays, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::advice_next, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::look, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::rows, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::columns_of_rows, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::gain, module)?)?;
    module.add_function(wrap_pyfunction!(interrupt::panics, module)?)
}
