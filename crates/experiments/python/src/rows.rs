//! Converts requests to Arrow columns, with the names of `trace convert --to csv`, and back.

use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{BooleanBuilder, StringViewBuilder, UInt32Builder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types as kinds;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use manylogs_block::{Extent, Time};
use manylogs_workload::{
    BoxedSource, Format, OpenOptions, SourceCounts, TraceError, TraceOp, TraceRequest, TraceSource,
    open_reader,
};

/// Rows of one batch.
const BATCH_ROWS: usize = 1 << 16;

/// The columns of a trace.
pub(crate) static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let column = |name, kind| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![
        column("t_ns", DataType::UInt64),
        column("op", DataType::Utf8View),
        column("lba", DataType::UInt64),
        column("sectors", DataType::UInt64),
        column("fua", DataType::Boolean),
        column("dev", DataType::UInt32),
    ]))
});

/// Makes batches of requests.
#[derive(Debug, Default)]
struct Builder {
    t_ns: UInt64Builder,
    op: StringViewBuilder,
    lba: UInt64Builder,
    sectors: UInt64Builder,
    fua: BooleanBuilder,
    dev: UInt32Builder,
    rows: usize,
}

const fn letter(op: TraceOp) -> &'static str {
    match op {
        TraceOp::Read => "R",
        TraceOp::Write => "W",
        TraceOp::Discard => "D",
        TraceOp::WriteZeroes => "Z",
        TraceOp::Flush => "F",
    }
}

impl Builder {
    fn push(&mut self, request: &TraceRequest) {
        self.t_ns.append_value(request.at.0);
        self.op.append_value(letter(request.op));
        self.lba.append_value(request.extent.start.0);
        self.sectors.append_value(request.extent.len.0);
        self.fua.append_value(request.fua);
        self.dev.append_value(request.device);
        self.rows += 1;
    }

    fn finish(&mut self) -> Result<RecordBatch, TraceError> {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.t_ns.finish()),
            Arc::new(self.op.finish()),
            Arc::new(self.lba.finish()),
            Arc::new(self.sectors.finish()),
            Arc::new(self.fua.finish()),
            Arc::new(self.dev.finish()),
        ];
        RecordBatch::try_new(Arc::clone(&SCHEMA), columns).map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> TraceError {
    TraceError::Options(error.to_string().into())
}

/// Reads requests as batches.
pub(crate) struct Batches {
    source: BoxedSource,
    ended: bool,
}

impl Batches {
    pub(crate) const fn new(source: BoxedSource) -> Self {
        Self { source, ended: false }
    }

    /// The next batch; `None` at the end.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, TraceError> {
        let mut builder = Builder::default();
        while !self.ended && builder.rows < BATCH_ROWS {
            match self.source.next_request() {
                Some(request) => builder.push(&request?),
                None => self.ended = true,
            }
        }
        if builder.rows == 0 { Ok(None) } else { builder.finish().map(Some) }
    }

    /// Counts of what the reader has dropped so far.
    pub(crate) fn counts(&self) -> SourceCounts {
        self.source.counts()
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, arrow_schema::ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch().transpose()?;
        self.ended |= batch.is_err();
        Some(batch.map_err(|error| arrow_schema::ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&SCHEMA)
    }
}

/// Reads requests from batches that [`Batches`] has made.
pub(crate) struct Kept {
    batches: Arc<Vec<RecordBatch>>,
    batch: usize,
    row: usize,
    counts: SourceCounts,
}

impl Kept {
    pub(crate) const fn new(batches: Arc<Vec<RecordBatch>>, counts: SourceCounts) -> Self {
        Self { batches, batch: 0, row: 0, counts }
    }
}

impl TraceSource for Kept {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        let batch = self.batches.get(self.batch)?;
        let row = self.row;
        self.row += 1;
        if self.row == batch.num_rows() {
            (self.batch, self.row) = (self.batch + 1, 0);
        }
        let number = |column| batch.column(column).as_primitive::<UInt64Type>().value(row);
        let op = match batch.column(1).as_string_view().value(row) {
            "R" => TraceOp::Read,
            "W" => TraceOp::Write,
            "D" => TraceOp::Discard,
            "Z" => TraceOp::WriteZeroes,
            _ => TraceOp::Flush,
        };
        Some(Ok(TraceRequest {
            at: Time(number(0)),
            op,
            extent: Extent::new(number(2), number(3)),
            fua: batch.column(4).as_boolean().value(row),
            device: batch.column(5).as_primitive::<UInt32Type>().value(row),
        }))
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }
}

/// Reads another library's table through the reader of CSV, which finds columns by their names and
/// reports errors in rows. Row n is line n + 1.
pub(crate) fn of_table(
    name: &Path,
    reader: impl RecordBatchReader + Send + 'static,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let options = OpenOptions { format: Some(Format::Csv), ..*options };
    open_reader(name, Lines::new(reader)?, &options)
}

/// A table as the text of a CSV file, generated while it is read.
struct Lines<R> {
    reader: R,
    text: Vec<u8>,
    taken: usize,
}

impl<R: RecordBatchReader> Lines<R> {
    fn new(reader: R) -> Result<Self, TraceError> {
        let schema = reader.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let text = (names.join(",") + "\n").into_bytes();
        Ok(Self { reader, text, taken: 0 })
    }

    fn fill(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.text.clear();
        self.taken = 0;
        let cells: Vec<Cell<'_>> = batch.columns().iter().map(|column| cell(column)).collect();
        for row in 0..batch.num_rows() {
            for (index, (cell, column)) in cells.iter().zip(batch.columns()).enumerate() {
                if index > 0 {
                    self.text.push(b',');
                }
                if column.is_valid(row) {
                    cell(row, &mut self.text)?;
                }
            }
            self.text.push(b'\n');
        }
        Ok(())
    }
}

impl<R: RecordBatchReader> Read for Lines<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.text.len() {
            match self.reader.next() {
                Some(batch) => self.fill(&batch.map_err(io::Error::other)?)?,
                None => return Ok(0),
            }
        }
        let count = to.len().min(self.text.len() - self.taken);
        to[..count].copy_from_slice(&self.text[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

type Cell<'a> = Box<dyn Fn(usize, &mut Vec<u8>) -> io::Result<()> + 'a>;

fn number<T: ArrowPrimitiveType>(column: &dyn Array) -> Cell<'_>
where
    T::Native: std::fmt::Display,
{
    let column = column.as_primitive::<T>();
    Box::new(move |row, out| io::Write::write_fmt(out, format_args!("{}", column.value(row))))
}

fn text<'a>(of: impl Fn(usize) -> &'a str + 'a) -> Cell<'a> {
    Box::new(move |row, out| {
        // Separators are dropped: a cell of two lines would become two rows.
        let cell = of(row).bytes().filter(|byte| !b",\n\r\"".contains(byte));
        out.extend(cell);
        Ok(())
    })
}

/// The function that writes the cells of a column.
fn cell(column: &dyn Array) -> Cell<'_> {
    match column.data_type() {
        DataType::Int8 => number::<kinds::Int8Type>(column),
        DataType::Int16 => number::<kinds::Int16Type>(column),
        DataType::Int32 => number::<kinds::Int32Type>(column),
        DataType::Int64 => number::<kinds::Int64Type>(column),
        DataType::UInt8 => number::<kinds::UInt8Type>(column),
        DataType::UInt16 => number::<kinds::UInt16Type>(column),
        DataType::UInt32 => number::<kinds::UInt32Type>(column),
        DataType::UInt64 => number::<kinds::UInt64Type>(column),
        DataType::Float32 => number::<kinds::Float32Type>(column),
        DataType::Float64 => number::<kinds::Float64Type>(column),
        DataType::Utf8 => {
            let column = column.as_string::<i32>();
            text(|row| column.value(row))
        }
        DataType::LargeUtf8 => {
            let column = column.as_string::<i64>();
            text(|row| column.value(row))
        }
        DataType::Utf8View => {
            let column = column.as_string_view();
            text(|row| column.value(row))
        }
        DataType::Boolean => {
            let column = column.as_boolean();
            Box::new(|row, out| {
                out.push(if column.value(row) { b'1' } else { b'0' });
                Ok(())
            })
        }
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            let (keys, values) = (dictionary.normalized_keys(), cell(dictionary.values()));
            Box::new(move |row, out| values(keys[row], out))
        }
        // A column of another type stays empty; if it is needed the reader reports that.
        _ => Box::new(|_, _| Ok(())),
    }
}
