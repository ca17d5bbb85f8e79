//! Tables passed to and from Python: the Arrow C stream interface, in capsules.
//!
//! The import of tables needs unsafe code. The export needs none: a capsule owns the stream, and
//! the library that takes the stream marks it as released.

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::failure::Failure;

/// The interface's name for such capsules.
const NAME: &std::ffi::CStr = c"arrow_array_stream";
/// The method that returns such a capsule.
pub(crate) const METHOD: &str = "__arrow_c_stream__";

/// The batches of `reader` as a capsule. Their buffers are shared, not copied.
///
/// # Errors
/// If Python has no memory for the capsule.
pub(crate) fn export<'py>(
    py: Python<'py>,
    reader: impl RecordBatchReader + Send + 'static,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), NAME)
}

/// The batches of another library's table.
///
/// # Errors
/// If `table` is not a table, or its stream cannot be begun.
#[expect(unsafe_code, reason = "takes over a C structure that another library filled")]
pub(crate) fn import(table: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let capsule = table.call_method0(METHOD)?;
    let capsule = capsule
        .cast::<PyCapsule>()
        .map_err(|_| Failure::input(format!("{METHOD} returned no capsule: not an Arrow table")))?;
    let stream = capsule.pointer_checked(Some(NAME))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name points to a stream that the other library has filled as the
    // interface demands, and that lives as long as the capsule, which is held here. Its content is
    // moved out, and what is left is marked as released, so that the capsule's destructor does not
    // release it a second time. A capsule that was taken before is marked so, and refused.
    let taken = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    if taken.release().is_none() {
        return Err(Failure::input("the table's stream was read before").into());
    }
    Ok(RecordBatchStreamReader::try_new(taken).map_err(Failure::input)?)
}
