//! Rows as columns, in CSV and Parquet.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::row::{Figures, Row};

/// The values of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Text.
    Text(Vec<String>),
    /// Text that is one of few names: the names, and the index of each value's name.
    Named(Arc<[String]>, Vec<u8>),
    /// Whole numbers.
    Whole(Vec<u64>),
    /// Whole numbers that are small. Files have them as the others.
    Small(Vec<u32>),
    /// Numbers; `None` where no value was measured.
    Real(Vec<Option<f64>>),
    /// Numbers without gaps. Files have them as the others.
    Exact(Vec<f64>),
    /// Booleans.
    Flag(Vec<bool>),
}

/// Named columns of equal length, in one chunk of rows or in several that follow one another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    names: Vec<String>,
    chunks: Vec<Vec<Column>>,
}

/// One column for each figure of a run. `docs/sweeps.md` explains the figures.
#[must_use]
pub fn columns(rows: &[Row]) -> Columns {
    let text = |of: fn(&Row) -> &String| Column::Text(rows.iter().map(of).cloned().collect());
    let whole = |of: fn(&Row) -> u64| Column::Whole(rows.iter().map(of).collect());
    let real = |of: fn(&Row) -> Option<f64>| Column::Real(rows.iter().map(of).collect());
    let flag = |of: fn(&Row) -> bool| Column::Flag(rows.iter().map(of).collect());
    let mut columns = Columns::default();
    columns.add("trace", text(|row| &row.ask.trace));
    columns.add("trace_content", text(|row| &row.trace_content));
    columns.add("drive", text(|row| &row.ask.drive));
    columns.add("policy", text(|row| &row.ask.policy));
    columns.add("parameters", text(|row| &row.parameters));
    columns.add("seed", whole(|row| row.ask.seed));
    columns.add("drive_write_cache", flag(|row| row.drive_write_cache));
    columns.add("durability", text(|row| &row.durability));
    columns.add("rate", real(|row| Some(row.rate)));
    columns.add("requests", whole(|row| row.requests));
    columns.figures("durable", rows, |row| &row.durable);
    columns.figures("reads", rows, |row| &row.reads);
    columns.add("stream_mb_s", real(|row| row.stream_mb_s));
    columns.add("drive_busy_percent", real(|row| Some(row.drive_busy_percent)));
    columns.add("overloaded", flag(|row| row.overloaded));
    columns.add("bursts", flag(|row| row.bursts));
    columns.add("backlog_seconds", real(|row| Some(row.backlog_seconds)));
    columns.add("target_busy_percent", real(|row| row.target_busy_percent));
    columns.add("plain_busy_percent", real(|row| row.plain_busy_percent));
    columns.add("logged_writes", whole(|row| row.logged_writes));
    columns.add("record_bytes", whole(|row| row.record_bytes));
    columns.add("log_swaps", whole(|row| row.log_swaps));
    columns.add("log_fullest_percent", real(|row| Some(row.log_fullest_percent)));
    columns.add("table_bytes_max", whole(|row| row.table_bytes_max));
    columns.add("checkpoint_seconds", real(|row| row.checkpoint_seconds));
    columns.add("checkpoint_read_seconds", real(|row| Some(row.checkpoint?.log_read_seconds)));
    columns.add("checkpoint_write_seconds", real(|row| Some(row.checkpoint?.home_write_seconds)));
    columns.add("writes_saved_percent", real(|row| Some(row.checkpoint?.writes_saved_percent)));
    columns.add("sectors_saved_percent", real(|row| Some(row.checkpoint?.sectors_saved_percent)));
    columns.add("simulated_seconds", real(|row| Some(row.simulated_seconds)));
    columns
}

impl Columns {
    /// Columns of these names. Every chunk has one column for each name, of the same kind as those
    /// of other chunks.
    #[must_use]
    pub fn of_chunks<'a>(
        names: impl IntoIterator<Item = &'a str>,
        chunks: Vec<Vec<Column>>,
    ) -> Self {
        Self { names: names.into_iter().map(str::to_owned).collect(), chunks }
    }

    /// Adds a column to columns of one chunk.
    pub fn add(&mut self, name: &str, column: Column) {
        self.names.push(name.to_owned());
        if self.chunks.is_empty() {
            self.chunks.push(Vec::new());
        }
        self.chunks[0].push(column);
    }

    fn figures(&mut self, kind: &str, rows: &[Row], of: fn(&Row) -> &Figures) {
        let of = || rows.iter().map(of);
        let real = |figure: fn(&Figures) -> Option<f64>| Column::Real(of().map(figure).collect());
        self.add(&format!("{kind}_count"), Column::Whole(of().map(|f| f.count).collect()));
        self.add(&format!("{kind}_mean_us"), real(|f| f.mean));
        self.add(&format!("{kind}_p50_us"), real(|f| f.p50));
        self.add(&format!("{kind}_p90_us"), real(|f| f.p90));
        self.add(&format!("{kind}_p99_us"), real(|f| f.p99));
        self.add(&format!("{kind}_max_us"), real(|f| f.max));
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The columns of each chunk, in the order of the names.
    #[must_use]
    pub fn chunks(&self) -> &[Vec<Column>] {
        &self.chunks
    }

    /// [`chunks`](Self::chunks), handed over.
    #[must_use]
    pub fn into_chunks(self) -> Vec<Vec<Column>> {
        self.chunks
    }

    /// The columns as CSV. The first line holds the names.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = self.names().collect::<Vec<_>>().join(",") + "\n";
        for chunk in &self.chunks {
            for row in 0..chunk.first().map_or(0, Column::len) {
                let cells: Vec<String> = chunk.iter().map(|column| column.cell(row)).collect();
                out += &cells.join(",");
                out.push('\n');
            }
        }
        out
    }

    /// Writes the columns to `to` as one Parquet file, which does not show the chunks.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn parquet(&self, to: impl Write + Send) -> ParquetResult<()> {
        let first = self.chunks.first().map_or(&[][..], Vec::as_slice);
        let fields = self.names.iter().zip(first).map(|(name, column)| column.field(name));
        let fields = fields.collect::<ParquetResult<Vec<_>>>()?;
        let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
        let properties = WriterProperties::builder().set_created_by("manylogs".to_owned()).build();
        let mut file = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))?;
        let mut group = file.next_row_group()?;
        let missing = || ParquetError::General("a column more than the schema has".to_owned());
        for nth in 0..first.len() {
            let mut writer = group.next_column()?.ok_or_else(missing)?;
            for chunk in &self.chunks {
                chunk[nth].write(&mut writer)?;
            }
            writer.close()?;
        }
        group.close()?;
        file.close()?;
        Ok(())
    }
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Named(_, values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Small(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Exact(values) => values.len(),
            Self::Flag(values) => values.len(),
        }
    }

    fn cell(&self, row: usize) -> String {
        match self {
            Self::Text(values) => quoted(&values[row]),
            Self::Named(names, values) => quoted(&names[usize::from(values[row])]),
            Self::Whole(values) => values[row].to_string(),
            Self::Small(values) => values[row].to_string(),
            Self::Real(values) => values[row].map_or_else(String::new, |value| value.to_string()),
            Self::Exact(values) => values[row].to_string(),
            Self::Flag(values) => values[row].to_string(),
        }
    }

    fn field(&self, name: &str) -> ParquetResult<Arc<Type>> {
        let (physical, logical, repetition) = match self {
            Self::Text(_) | Self::Named(..) => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED)
            }
            Self::Whole(_) | Self::Small(_) => (Physical::INT64, None, Repetition::REQUIRED),
            Self::Real(_) | Self::Exact(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
            Self::Flag(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
        };
        let field = Type::primitive_type_builder(name, physical);
        Ok(Arc::new(field.with_logical_type(logical).with_repetition(repetition).build()?))
    }

    fn write(&self, writer: &mut SerializedColumnWriter<'_>) -> ParquetResult<()> {
        let bytes = |text: &String| ByteArray::from(text.as_str());
        match self {
            Self::Text(values) => {
                let texts: Vec<ByteArray> = values.iter().map(bytes).collect();
                writer.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
            }
            Self::Named(names, values) => {
                let names: Vec<ByteArray> = names.iter().map(bytes).collect();
                let texts: Vec<ByteArray> =
                    values.iter().map(|&value| names[usize::from(value)].clone()).collect();
                writer.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
            }
            Self::Whole(values) => {
                let signed: Vec<i64> = values.iter().map(|value| value.cast_signed()).collect();
                writer.typed::<Int64Type>().write_batch(&signed, None, None)?;
            }
            Self::Small(values) => {
                let signed: Vec<i64> = values.iter().copied().map(i64::from).collect();
                writer.typed::<Int64Type>().write_batch(&signed, None, None)?;
            }
            Self::Real(values) => {
                let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
                let there: Vec<f64> = values.iter().copied().flatten().collect();
                writer.typed::<DoubleType>().write_batch(&there, Some(&levels), None)?;
            }
            Self::Exact(values) => {
                let levels = vec![1; values.len()];
                writer.typed::<DoubleType>().write_batch(values, Some(&levels), None)?;
            }
            Self::Flag(values) => {
                writer.typed::<BoolType>().write_batch(values, None, None)?;
            }
        }
        Ok(())
    }
}

/// A cell of CSV: in quotation marks where it needs them.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    fn sample() -> Columns {
        let mut columns = Columns::default();
        columns.add("policy", Column::Text(vec!["mlb:log=1M,hold=5ms".into(), "mlb".into()]));
        columns.add("seed", Column::Whole(vec![1, 2]));
        columns.add("mean_us", Column::Real(vec![Some(1.5), None]));
        columns.add("overloaded", Column::Flag(vec![true, false]));
        columns
    }

    #[test]
    fn csv_quotes_what_holds_commas_and_leaves_out_what_is_not_there() {
        let expected = "policy,seed,mean_us,overloaded\n\"mlb:log=1M,hold=5ms\",1,1.5,true\n\
                        mlb,2,,false\n";
        assert_eq!(sample().csv(), expected);
    }

    #[test]
    fn parquet_reads_back_the_same() {
        let mut file = Vec::new();
        sample().parquet(&mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].contains("mlb:log=1M,hold=5ms") && rows[0].contains("1.5"), "{rows:?}");
        assert!(rows[1].contains("null") && rows[1].contains("false"), "{rows:?}");
    }

    /// What files show of columns must not depend on how memory holds them.
    #[test]
    fn narrow_columns_in_chunks_give_the_same_files() {
        const ROWS: u32 = 5000;
        let names: Arc<[String]> = ["home".to_owned(), "log".to_owned()].into();
        let chunk = |rows: std::ops::Range<u32>| {
            vec![
                Column::Exact(rows.clone().map(|row| f64::from(row) / 7.0).collect()),
                Column::Named(
                    Arc::clone(&names),
                    rows.clone().map(|row| u8::from(row % 2 == 1)).collect(),
                ),
                Column::Small(rows.collect()),
            ]
        };
        let headings = ["latency_us", "served", "request"];
        // Parts of 1024 rows are what the writer of Parquet takes at a time.
        let narrow = Columns::of_chunks(headings, vec![chunk(0..4096), chunk(4096..ROWS)]);
        let mut wide = Columns::default();
        wide.add(headings[0], Column::Real((0..ROWS).map(|r| Some(f64::from(r) / 7.0)).collect()));
        let served = (0..ROWS).map(|row| names[row as usize % 2].clone()).collect();
        wide.add(headings[1], Column::Text(served));
        wide.add(headings[2], Column::Whole((0..u64::from(ROWS)).collect()));
        assert_eq!(narrow.csv(), wide.csv());
        let file = |columns: &Columns| {
            let mut file = Vec::new();
            columns.parquet(&mut file).unwrap();
            file
        };
        assert!(file(&narrow) == file(&wide));
    }
}
