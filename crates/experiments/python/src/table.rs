//! Tables that Python libraries can use without a copy.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, RecordBatch, RecordBatchIterator,
    RecordBatchReader, StringArray, StringViewArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use manylogs_lab::sweep::{Column, Columns};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::capsule::export;
use crate::failure::Failure;

/// Named columns, exported through `__arrow_c_stream__`.
#[pyclass(frozen, module = "manylogs")]
#[derive(Debug)]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

/// The values of a column as Arrow has them. Numbers stay where they are.
fn array(column: Column) -> Result<ArrayRef, ArrowError> {
    Ok(match column {
        Column::Text(values) => Arc::new(StringViewArray::from_iter_values(values)),
        Column::Named(names, values) => {
            let names = Arc::new(StringArray::from_iter_values(names.iter()));
            Arc::new(DictionaryArray::<UInt8Type>::try_new(UInt8Array::from(values), names)?)
        }
        Column::Whole(values) => Arc::new(UInt64Array::from(values)),
        Column::Small(values) => Arc::new(UInt32Array::from(values)),
        Column::Real(values) => Arc::new(Float64Array::from(values)),
        Column::Exact(values) => Arc::new(Float64Array::from(values)),
        Column::Flag(values) => Arc::new(BooleanArray::from(values)),
    })
}

/// The values of an array that [`array`] has made.
fn column(array: &ArrayRef) -> Column {
    let text = |value: &str| value.to_owned();
    match array.data_type() {
        DataType::UInt64 => Column::Whole(array.as_primitive::<UInt64Type>().values().to_vec()),
        DataType::UInt32 => Column::Small(array.as_primitive::<UInt32Type>().values().to_vec()),
        DataType::Float64 => Column::Real(array.as_primitive::<Float64Type>().iter().collect()),
        DataType::Boolean => Column::Flag(array.as_boolean().values().iter().collect()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary::<UInt8Type>();
            let names = dictionary.values().as_string::<i32>().iter().flatten().map(text);
            Column::Named(names.collect(), dictionary.keys().values().to_vec())
        }
        _ => Column::Text(array.as_string_view().iter().flatten().map(text).collect()),
    }
}

impl Table {
    /// The table of these columns, with a batch for each chunk.
    pub(crate) fn new(columns: Columns) -> Result<Self, Failure> {
        let names: Vec<String> = columns.names().map(str::to_owned).collect();
        let mut schema = Arc::new(Schema::empty());
        let mut batches = Vec::new();
        for chunk in columns.into_chunks() {
            let arrays: Result<Vec<ArrayRef>, _> = chunk.into_iter().map(array).collect();
            let arrays = arrays.map_err(Failure::program)?;
            if batches.is_empty() {
                let field = |(name, array): (&String, &ArrayRef)| {
                    let nullable = *array.data_type() == DataType::Float64;
                    Field::new(name, array.data_type().clone(), nullable)
                };
                let fields: Vec<Field> = names.iter().zip(&arrays).map(field).collect();
                schema = Arc::new(Schema::new(fields));
            }
            let batch = RecordBatch::try_new(Arc::clone(&schema), arrays);
            batches.push(batch.map_err(Failure::program)?);
        }
        Ok(Self { schema, batches })
    }

    /// The columns as the program writes them to files.
    fn columns(&self) -> Columns {
        let names = self.schema.fields().iter().map(|field| field.name().as_str());
        let chunk = |batch: &RecordBatch| batch.columns().iter().map(column).collect();
        Columns::of_chunks(names, self.batches.iter().map(chunk).collect())
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows us to ignore the requested schema.
        drop(requested_schema);
        export(py, shared(Arc::clone(&self.schema), self.batches.clone()))
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
