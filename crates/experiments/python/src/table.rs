//! Tables that Python libraries can use without a copy.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchIterator, RecordBatchReader,
    StringViewArray, UInt64Array,
};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use manylogs_lab::sweep::{Column, Columns};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::capsule::export;
use crate::failure::Failure;

/// Named columns, exported through `__arrow_c_stream__`.
#[pyclass(frozen, module = "manylogs")]
#[derive(Debug)]
pub(crate) struct Table {
    batch: RecordBatch,
    columns: Columns,
}

impl Table {
    /// The table of these columns.
    pub(crate) fn new(columns: Columns) -> Result<Self, Failure> {
        let of = |(name, column): (&str, &Column)| -> (Field, ArrayRef) {
            let array: ArrayRef = match column {
                Column::Text(values) => Arc::new(StringViewArray::from_iter_values(values)),
                Column::Whole(values) => Arc::new(UInt64Array::from(values.clone())),
                Column::Real(values) => Arc::new(Float64Array::from(values.clone())),
                Column::Flag(values) => Arc::new(BooleanArray::from(values.clone())),
            };
            let nullable = matches!(column, Column::Real(_));
            (Field::new(name, array.data_type().clone(), nullable), array)
        };
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.iter().map(of).unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(Self { batch: batch.map_err(Failure::program)?, columns })
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.columns.names().collect()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows us to ignore the requested schema.
        drop(requested_schema);
        export(py, shared(self.batch.schema(), vec![self.batch.clone()]))
    }

    /// The table as the text of a CSV file.
    fn csv(&self) -> String {
        self.columns.csv()
    }

    /// The table as the bytes of a Parquet file.
    fn parquet(&self) -> PyResult<Vec<u8>> {
        let mut bytes = Vec::new();
        self.columns.parquet(&mut bytes).map_err(Failure::program)?;
        Ok(bytes)
    }
}

/// A reader over batches in memory, which share their buffers with it.
pub(crate) fn shared(
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
) -> impl RecordBatchReader + Send + 'static {
    RecordBatchIterator::new(batches.into_iter().map(Ok::<_, ArrowError>), schema)
}
