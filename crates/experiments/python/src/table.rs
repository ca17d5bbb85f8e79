//! Tables that Python libraries can use without a copy.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchIterator,
    RecordBatchReader, StringViewArray, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use manylogs_lab::replay::Answered;
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
}

impl Table {
    /// The table of these columns.
    pub(crate) fn new(columns: &Columns) -> Result<Self, Failure> {
        let array = |column: &Column| -> ArrayRef {
            match column {
                Column::Text(values) => Arc::new(StringViewArray::from_iter_values(values)),
                Column::Whole(values) => Arc::new(UInt64Array::from(values.clone())),
                Column::Real(values) => Arc::new(Float64Array::from(values.clone())),
                Column::Flag(values) => Arc::new(BooleanArray::from(values.clone())),
            }
        };
        Self::of_arrays(columns.iter().map(|(name, column)| (name, array(column))))
    }

    /// One row for each answer, in 72 bytes. Its text is made when it is asked for.
    pub(crate) fn of_answers(answers: &[Answered]) -> Result<Self, Failure> {
        let real = |of: fn(&Answered) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(answers.iter().map(of)))
        };
        let whole = |of: fn(&Answered) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(answers.iter().map(of)))
        };
        let served = answers.iter().map(|one| one.served.name());
        let kinds = answers.iter().map(|one| one.class.name());
        Self::of_arrays([
            ("arrived_s", real(|one| one.arrived.as_secs_f64())),
            ("kind", Arc::new(StringViewArray::from_iter_values(kinds)) as ArrayRef),
            ("latency_us", real(|one| one.latency.0 as f64 / 1e3)),
            ("request", whole(|one| one.request)),
            ("lba", whole(|one| one.extent.start.0)),
            ("sectors", whole(|one| one.extent.len.0)),
            ("served", Arc::new(StringViewArray::from_iter_values(served)) as ArrayRef),
        ])
    }

    fn of_arrays<'a>(
        arrays: impl IntoIterator<Item = (&'a str, ArrayRef)>,
    ) -> Result<Self, Failure> {
        let of = |(name, array): (&str, ArrayRef)| {
            let nullable = *array.data_type() == DataType::Float64;
            (Field::new(name, array.data_type().clone(), nullable), array)
        };
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = arrays.into_iter().map(of).unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(Self { batch: batch.map_err(Failure::program)? })
    }

    /// The columns as the program writes them to files.
    fn columns(&self) -> Columns {
        let mut columns = Columns::default();
        for (field, array) in self.batch.schema().fields().iter().zip(self.batch.columns()) {
            let column = match array.data_type() {
                DataType::UInt64 => {
                    Column::Whole(array.as_primitive::<UInt64Type>().values().to_vec())
                }
                DataType::Float64 => {
                    Column::Real(array.as_primitive::<Float64Type>().iter().collect())
                }
                DataType::Boolean => Column::Flag(array.as_boolean().values().iter().collect()),
                _ => Column::Text(
                    array.as_string_view().iter().flatten().map(str::to_owned).collect(),
                ),
            };
            columns.add(field.name(), column);
        }
        columns
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
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
        self.columns().csv()
    }

    /// The table as the bytes of a Parquet file.
    fn parquet(&self) -> PyResult<Vec<u8>> {
        let mut bytes = Vec::new();
        self.columns().parquet(&mut bytes).map_err(Failure::program)?;
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
