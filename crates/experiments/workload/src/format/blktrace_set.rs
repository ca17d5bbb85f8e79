//! Several per-CPU blktrace files as one trace: a directory, siblings, or a tar archive.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::TraceError;
use crate::format::blktrace::{BlktraceFile, Cpu};
use crate::input::Input;
use crate::merge::Merge;
use crate::open::{Format, OpenOptions};
use crate::order::{Disorder, Ordered};
use crate::request::BoxedSource;
use crate::tar;

/// The parts of a per-CPU file's name: what stands before the CPU number, and the number.
///
/// The name is `<device>.blktrace.<cpu>`, perhaps with `.gz` or `.zst` behind it.
fn per_cpu_name(path: &Path) -> Option<(String, u32)> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(name);
    let (stem, cpu) = name.rsplit_once('.')?;
    let cpu = cpu.parse().ok()?;
    stem.ends_with(".blktrace").then(|| (stem.to_owned(), cpu))
}

/// The files that the trace at `path` consists of: those of all CPUs in their order, or itself.
///
/// # Errors
/// If a directory cannot be listed, or holds no such file.
pub fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_dir() {
        let files = per_cpu_files(path, |_| true)?;
        if files.is_empty() {
            let message = "a directory must hold blktrace files named <device>.blktrace.<cpu>";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        return Ok(files.into_iter().map(|(file, _)| file).collect());
    }
    match per_cpu_name(path).filter(|_| path.is_file()) {
        Some((stem, _)) => {
            let files = per_cpu_files(directory_of(path), |other| other == stem)?;
            Ok(files.into_iter().map(|(file, _)| file).collect())
        }
        None => Ok(vec![path.to_owned()]),
    }
}

fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// Merges the per-CPU files of a directory; they may be of several devices.
pub(crate) fn open_directory(
    directory: &Path,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let cannot = |source| TraceError::io(directory, "list the directory", source);
    let files = per_cpu_files(directory, |_| true).map_err(cannot)?;
    if files.is_empty() {
        let shown = directory.display();
        let message = format!(
            "{shown}: a directory must hold blktrace files named <device>.blktrace.<cpu>; \
             found none"
        );
        return Err(TraceError::Options(message.into()));
    }
    open_files(directory, files, options)
}

/// Merges `path` with the other CPUs' files beside it, if it is a per-CPU file by name.
pub(crate) fn open_siblings(
    path: &Path,
    options: &OpenOptions,
) -> Result<Option<BoxedSource>, TraceError> {
    let forced_other = options.format.is_some_and(|format| format != Format::Blktrace);
    let Some((stem, _)) = per_cpu_name(path).filter(|_| !forced_other && path.is_file()) else {
        return Ok(None);
    };
    let directory = directory_of(path);
    let cannot = |source| TraceError::io(directory, "list the directory", source);
    let files = per_cpu_files(directory, |other| other == stem).map_err(cannot)?;
    open_files(path, files, options).map(Some)
}

/// The per-CPU files in `directory` whose name before the number is wanted, in order of name.
fn per_cpu_files(
    directory: &Path,
    wanted: impl Fn(&str) -> bool,
) -> io::Result<Vec<(PathBuf, u32)>> {
    let mut files = Vec::new();
    for entry in directory.read_dir()? {
        let path = entry?.path();
        if let Some((stem, cpu)) = per_cpu_name(&path)
            && wanted(&stem)
        {
            files.push((path, cpu));
        }
    }
    files.sort();
    Ok(files)
}

fn open_files(
    name: &Path,
    files: Vec<(PathBuf, u32)>,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let inputs = files.into_iter().map(|(path, cpu)| Ok((Input::open(&path)?, cpu)));
    merged(name, inputs.collect::<Result<_, TraceError>>()?, options)
}

fn merged(
    name: &Path,
    inputs: Vec<(Input, u32)>,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let files = inputs.into_iter().map(|(input, cpu)| -> BoxedSource {
        Box::new(BlktraceFile::new(input, Cpu::Number(cpu), options))
    });
    let merge = Merge::new(files.collect())?;
    Ok(Box::new(Ordered::new(Box::new(merge), Disorder::SMALL, name, Format::Blktrace)))
}

/// Opens `path` as an uncompressed tar archive, if it is one.
pub(crate) fn open_archive(
    path: &Path,
    options: &OpenOptions,
) -> Result<Option<BoxedSource>, TraceError> {
    let cannot = |source| TraceError::io(path, "open it", source);
    let file = File::open(path).map_err(cannot)?;
    let is_file = file.metadata().map_err(cannot)?.is_file();
    let mut header = [0; tar::BLOCK_BYTES];
    if !is_file || file.read_exact_at(&mut header, 0).is_err() || !tar::probe(&header) {
        return Ok(None);
    }
    let mut sections = Vec::new();
    let mut input = Input::open(path)?;
    let file = Arc::new(file);
    tar::for_each_file(&mut input, |member, input| {
        let offset = input.offset();
        sections.push((member.path.clone(), Section::new(&file, offset, member.bytes)));
        Ok(())
    })?;
    open_sections(path, sections, options).map(Some)
}

/// Reads a compressed tar archive, whose members cannot be read side by side: they are
/// unpacked into an unnamed temporary file first.
pub(crate) fn unpack_archive(
    mut input: Input,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let name = input.file().to_owned();
    let action = "unpack it into a temporary file (set TMPDIR to a place with room)";
    let cannot = |source| TraceError::io(&name, action, source);
    let spool = Arc::new(tempfile::tempfile().map_err(cannot)?);
    let mut sections = Vec::new();
    let mut spooled = 0_u64;
    tar::for_each_file(&mut input, |member, input| {
        if per_cpu_name(&member.path).is_none() {
            return Ok(());
        }
        let copied = copy_member(input, &spool, spooled, member.bytes, &cannot)?;
        sections.push((member.path.clone(), Section::new(&spool, spooled, copied)));
        spooled += copied;
        Ok(())
    })
    .or_else(|error| match error {
        TraceError::Truncated(_) if options.skip_bad => Ok(()),
        error => Err(error),
    })?;
    open_sections(&name, sections, options)
}

/// Copies up to `bytes` from `input` to `spool` at `offset`; returns how many there were.
fn copy_member(
    input: &mut Input,
    spool: &File,
    offset: u64,
    bytes: u64,
    cannot: &impl Fn(io::Error) -> TraceError,
) -> Result<u64, TraceError> {
    const CHUNK_BYTES: u64 = 128 << 10;
    let mut copied = 0;
    while copied < bytes {
        let wanted = usize::try_from(CHUNK_BYTES.min(bytes - copied)).unwrap_or(0);
        let chunk = input.peek(wanted)?;
        let have = chunk.len();
        if have == 0 {
            break;
        }
        spool.write_all_at(chunk, offset + copied).map_err(cannot)?;
        input.consume(have);
        copied += have as u64;
    }
    Ok(copied)
}

fn open_sections(
    name: &Path,
    sections: Vec<(PathBuf, Section)>,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let mut inputs = Vec::new();
    for (member, section) in sections {
        if let Some((_, cpu)) = per_cpu_name(&member) {
            let total = section.end - section.offset;
            inputs.push((Input::from_reader(&name.join(member), section, Some(total))?, cpu));
        }
    }
    if inputs.is_empty() {
        let shown = name.display();
        let message = format!(
            "{shown}: the archive holds no blktrace file named <device>.blktrace.<cpu>; \
             for other formats unpack it first"
        );
        return Err(TraceError::Options(message.into()));
    }
    merged(name, inputs, options)
}

/// A part of a file.
struct Section {
    file: Arc<File>,
    offset: u64,
    end: u64,
}

impl Section {
    fn new(file: &Arc<File>, offset: u64, bytes: u64) -> Self {
        Self { file: Arc::clone(file), offset, end: offset.saturating_add(bytes) }
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
