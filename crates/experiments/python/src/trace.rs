//! Traces: read once and kept in memory if they are short, else read again for each use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use manylogs_lab::prepare::{Prepared, TraceSpec, is_generated, prepare_unplaced};
use manylogs_lab::replay::{OpenTrace, Progress};
use manylogs_workload::{BoxedSource, Devices, OpenOptions, SourceCounts, TraceError, of_devices};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::capsule::{export, import};
use crate::failure::Failure;
use crate::interrupt::{free, stoppable};
use crate::options::{Named, open_options, window};
use crate::rows::{Batches, Kept, SCHEMA, of_table};
use crate::table::shared;

/// Most requests of a trace that is kept in memory; longer traces are read again.
const KEPT_MAX: usize = 2_000_000;

/// A trace, or the chosen part of it.
#[pyclass(frozen, module = "manylogs")]
pub(crate) struct Trace {
    pub(crate) file: PathBuf,
    pub(crate) prepared: Prepared,
    requests: usize,
    counts: SourceCounts,
    /// Its columns, unless it is long.
    batches: Option<Arc<Vec<RecordBatch>>>,
}

/// Counts of one pass over a trace.
struct Pass {
    requests: usize,
    counts: SourceCounts,
    batches: Option<Vec<RecordBatch>>,
}

impl Pass {
    fn over(open: &OpenTrace) -> Result<Self, Failure> {
        let mut source = Batches::new(open()?);
        let (mut requests, mut batches) = (0, Some(Vec::new()));
        while let Some(batch) = source.next_batch()? {
            requests += batch.num_rows();
            if requests > KEPT_MAX {
                batches = None;
            }
            if let Some(batches) = &mut batches {
                batches.push(batch);
            }
        }
        Ok(Self { requests, counts: source.counts(), batches })
    }
}

impl Trace {
    /// The part of a trace that `spec` describes. Reads it to the end.
    fn part(spec: TraceSpec, whole: OpenTrace, progress: &Arc<Progress>) -> Result<Self, Failure> {
        let whole = Prepared { open: stoppable(whole, progress), transforms: Vec::new() };
        let spec = TraceSpec { read: vec![whole], ..spec };
        let part = prepare_unplaced(&spec, &spec.files[0])?;
        let pass = Pass::over(&part.open)?;
        Ok(Self::of(spec.files[0].clone(), part, pass))
    }

    /// The whole trace. Reads it to the end.
    fn whole(spec: &TraceSpec, open: OpenTrace, progress: &Arc<Progress>) -> Result<Self, Failure> {
        Self::part(TraceSpec { window: None, limit: None, ..spec.clone() }, open, progress)
    }

    fn of(file: PathBuf, prepared: Prepared, pass: Pass) -> Self {
        let Pass { requests, counts, batches } = pass;
        let Some(batches) = batches.map(Arc::new) else {
            return Self { file, prepared, requests, counts, batches: None };
        };
        let kept = Arc::clone(&batches);
        let open: OpenTrace =
            Arc::new(move || Ok(Box::new(Kept::new(Arc::clone(&kept), counts)) as BoxedSource));
        let prepared = Prepared { open, ..prepared };
        Self { file, prepared, requests, counts, batches: Some(batches) }
    }
}

#[pymethods]
impl Trace {
    /// Reads the trace at `file` from end to end.
    #[staticmethod]
    #[pyo3(signature = (file, **options))]
    fn read(py: Python<'_>, file: PathBuf, options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let named = Named::of(options.as_ref());
        let open = open_options(&named)?;
        let generated = is_generated(&file);
        let spec = spec(&file, &named, open)?;
        let limit = spec.limit.filter(|_| generated);
        let whole = TraceSpec { window: None, limit, ..spec.clone() };
        let whole = prepare_unplaced(&whole, &file).map_err(Failure::from)?;
        free(py, |progress| Self::part(spec, whole.open, progress))
    }

    /// Reads another library's table, which must give a new stream for each pass.
    #[staticmethod]
    #[pyo3(signature = (table, name, **options))]
    fn of_table(
        py: Python<'_>,
        table: Py<PyAny>,
        name: PathBuf,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let named = Named::of(options.as_ref());
        let open = open_options(&named)?;
        let spec = spec(&name, &named, open)?;
        let devices = open.devices;
        let open = OpenOptions { devices: Devices::All, ..open };
        let all = move || {
            let stream = Python::attach(|py| import(table.bind(py)));
            let stream = stream.map_err(|error| TraceError::Options(error.to_string().into()))?;
            of_table(&name, stream, &open)
        };
        free(py, |progress| {
            // Laying out devices takes a second pass, and some tables give their stream only once.
            let read = Self::whole(&spec, Arc::new(all), progress)?;
            let whole = move || of_devices(devices, &*read.prepared.open);
            Self::part(spec, Arc::new(whole), progress)
        })
    }

    fn __len__(&self) -> usize {
        self.requests
    }

    /// The file, or the name of the table.
    #[getter]
    fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// The preparation of the trace, in words.
    #[getter]
    fn transforms(&self) -> Vec<String> {
        self.prepared.transforms.clone()
    }

    /// Numbers of records that the reader dropped or changed, by kind.
    #[getter]
    fn dropped(&self) -> [(&'static str, u64); 5] {
        let SourceCounts { skipped, late, echoes, empty, lost } = self.counts;
        [
            ("malformed", skipped),
            ("late", late),
            ("echoes", echoes),
            ("empty", empty),
            ("lost", lost),
        ]
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows to ignore it.
        drop(requested_schema);
        match &self.batches {
            Some(batches) => export(py, shared(Arc::clone(&SCHEMA), batches.to_vec())),
            None => export(py, Batches::new((self.prepared.open)().map_err(Failure::from)?)),
        }
    }
}

fn spec(file: &Path, named: &Named<'_, '_>, open: OpenOptions) -> PyResult<TraceSpec> {
    Ok(TraceSpec {
        files: vec![file.to_owned()],
        open,
        opens: Vec::new(),
        window: window(named)?,
        windows: Vec::new(),
        read: Vec::new(),
        limit: named.get("limit")?,
        seed: named.get("seed")?.unwrap_or(1),
    })
}
