//! A folder with the paper's traces, as SNIA's archive has them.
//!
//! Each trace is a folder of files, `LiveMapsBackEnd/Traces/*.csv.gz`, of which each is some of its
//! time. They are known by the folder's name, their size, and their first lines.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use manylogs_block::Nanos;
use manylogs_workload::transform::busiest_windows;
use manylogs_workload::{Devices, OpenOptions, TraceError};

use crate::sweep::JobError;
use crate::tenants::{Tenant, table_one};

/// A trace's file is not shorter: it is cut, or something else.
const LEAST_BYTES: u64 = 200;
/// Traces of Windows begin with these words.
const HEAD: &[u8] = b"BeginHeader";
/// Folders are looked through to this depth below the tenant's.
const DEPTH: usize = 3;

/// Traces that were found, and what was wrong with others.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    found: Vec<Found>,
    /// What is missing, or looks like a trace and is none.
    pub notes: Vec<String>,
}

/// A trace.
#[derive(Clone, Debug)]
pub struct Found {
    /// T1 to T10.
    pub key: String,
    /// Its files, by name.
    pub files: Vec<PathBuf>,
}

impl Folder {
    /// Looks for the ten traces in `dir`. Those that are missing, or are not what their name says,
    /// are noted: generated ones stand in for them.
    ///
    /// # Errors
    /// If the folder cannot be read, or has none of them.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let mut folder = Self::default();
        dir.read_dir()?;
        for tenant in &table_one().tenants {
            folder.look(tenant, &dir.join(&tenant.folder))?;
        }
        if folder.found.is_empty() {
            let names: Vec<&str> =
                table_one().tenants.iter().map(|tenant| tenant.folder.as_str()).collect();
            let message = format!(
                "it has none of the paper's traces: expected folders named {}{}",
                names.join(", "),
                folder.notes.iter().fold(String::new(), |text, note| text + "; " + note)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(folder)
    }

    /// What was found.
    #[must_use]
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// The file of the trace with the busiest window of this length; `None` if there is none.
    /// A file that cannot be read goes to `left_out`.
    pub(super) fn trace_of(
        &self,
        tenant: &Tenant,
        by_writes: bool,
        len: Nanos,
        left_out: &mut Vec<JobError>,
    ) -> Option<PathBuf> {
        let found = self.found.iter().find(|found| found.key == tenant.key)?;
        let busy = |file: &PathBuf| {
            let mut source = manylogs_workload::open(file, &options(tenant))?;
            let windows = busiest_windows(&mut source, len)?;
            let window = if by_writes { windows.writes } else { windows.reads };
            Ok((window.per_second, file.clone()))
        };
        let mut all = Vec::new();
        for file in &found.files {
            match busy(file) {
                Ok(one) => all.push(one),
                Err(error) => note(left_out, &tenant.key, &error),
            }
        }
        all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, file)| file)
    }

    fn look(&mut self, tenant: &Tenant, dir: &Path) -> io::Result<()> {
        let name = format!("{} ({})", tenant.key, tenant.folder);
        if !dir.is_dir() {
            self.notes.push(format!("{name} is not there: generated requests stand in for it"));
            return Ok(());
        }
        let mut files = Vec::new();
        list(dir, DEPTH, &mut files)?;
        files.sort();
        let (good, bad): (Vec<_>, Vec<_>) = files
            .into_iter()
            .map(|file| (fault(&file, tenant), file))
            .partition(|(bad, _)| bad.is_none());
        for (fault, file) in bad {
            let fault = fault.unwrap_or_default();
            self.notes.push(format!("{}: {fault}: it is left out", file.display()));
        }
        if good.is_empty() {
            self.notes
                .push(format!("{name} has no usable file: generated requests stand in for it"));
            return Ok(());
        }
        let files = good.into_iter().map(|(_, file)| file).collect();
        self.found.push(Found { key: tenant.key.clone(), files });
        Ok(())
    }
}

/// How the tenant's files are read: the disk that the paper's authors take, in windows as in
/// replays.
pub(super) fn options(tenant: &Tenant) -> OpenOptions {
    OpenOptions { devices: Devices::Only(tenant.disk), ..OpenOptions::default() }
}

fn note(left_out: &mut Vec<JobError>, key: &str, error: &TraceError) {
    let (trace, reason, kind) = (key.to_owned(), error.to_string(), error.io_kind());
    let error = JobError::Trace { trace, reason, kind };
    if !left_out.contains(&error) {
        left_out.push(error);
    }
}

/// Files whose names say that they are traces.
fn list(dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && depth > 0 {
            list(&path, depth - 1, files)?;
        } else if [".csv", ".csv.gz", ".csv.zst"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Why the file is no trace of Windows; `None` if it is one to its end.
fn fault(file: &Path, tenant: &Tenant) -> Option<String> {
    let size = match file.metadata() {
        Ok(metadata) => metadata.len(),
        Err(error) => return Some(error.to_string()),
    };
    if size < LEAST_BYTES {
        return Some(format!("has {size} bytes: it is cut short, or something else"));
    }
    let mut head = [0; HEAD.len()];
    let plain = File::open(file).and_then(|mut file| file.read_exact(&mut head));
    if plain.is_ok() && file.extension().is_some_and(|it| it == "csv") && head != HEAD {
        return Some("does not begin as a trace of Windows (BeginHeader)".to_owned());
    }
    let mut source = match manylogs_workload::open(file, &options(tenant)) {
        Ok(source) => source,
        Err(error) => return Some(error.to_string()),
    };
    use manylogs_workload::TraceSource as _;
    while let Some(request) = source.next_request() {
        if let Err(error) = request {
            return Some(error.to_string());
        }
    }
    None
}
