//! Bytes of a trace file: decompressed, buffered, handed out by line or by record.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{BadRecord, Fault, Position, TraceError};

const BUFFER_BYTES: usize = 256 << 10;
/// Longer lines are malformed, so that a file without line ends cannot fill the memory.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 10;

/// Counts the bytes read from the file, before decompression.
struct Metered<R> {
    inner: R,
    consumed: Arc<AtomicU64>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.consumed.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A trace file, decompressed, behind a buffer.
pub(crate) struct Input {
    file: PathBuf,
    reader: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
    total: Option<u64>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `buffer[start]` in the decompressed stream.
    offset: u64,
    line: u64,
    at_end: bool,
    /// Why the input ended early; reported once the bytes read before are used up.
    failure: Option<TraceError>,
}

/// What [`Input::next_line`] found.
pub(crate) enum NextLine<'a> {
    Line(&'a [u8]),
    TooLong,
    End,
}

impl Input {
    /// Opens `path` and decompresses it if its first bytes say gzip or zstd.
    pub(crate) fn open(path: &Path) -> Result<Self, TraceError> {
        let cannot = |action| move |source| TraceError::io(path, action, source);
        let file = File::open(path).map_err(cannot("open the trace"))?;
        let metadata = file.metadata().map_err(cannot("read its size"))?;
        let total = metadata.is_file().then_some(metadata.len());
        Self::from_reader(path, file, total)
    }

    /// Reads from `reader`, naming it `name` in messages; `total` is its length in bytes if known.
    pub(crate) fn from_reader(
        name: &Path,
        reader: impl Read + Send + 'static,
        total: Option<u64>,
    ) -> Result<Self, TraceError> {
        let consumed = Arc::new(AtomicU64::new(0));
        let metered = Metered { inner: reader, consumed: Arc::clone(&consumed) };
        let reader = decompressed(metered)
            .map_err(|source| TraceError::io(name, "read its beginning", source))?;
        Ok(Self {
            file: name.to_owned(),
            reader,
            consumed,
            total,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            line: 0,
            at_end: false,
            failure: None,
        })
    }

    /// The file's name for messages.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Byte offset of the next byte to be read, after decompression.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The fraction of the file consumed; what waits in the buffer counts as consumed.
    pub(crate) fn progress(&self) -> Option<f64> {
        let total = self.total.filter(|&total| total > 0)?;
        Some((self.consumed.load(Ordering::Relaxed) as f64 / total as f64).min(1.0))
    }

    /// The error for a failed read at the current place.
    fn read_error(&self, source: io::Error) -> TraceError {
        // Decompressors report a missing end of stream this way.
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return TraceError::Truncated(Box::new(BadRecord {
                file: self.file.clone(),
                position: Position::Byte(self.offset + (self.end - self.start) as u64),
                expected: "the rest of the compressed stream".to_owned(),
                found: "the end of the file".to_owned(),
            }));
        }
        TraceError::io(&self.file, "read or decompress it", source)
    }

    /// Reads until `wanted` bytes wait in the buffer or the file ends; `wanted` <= buffer size.
    fn fill(&mut self, wanted: usize) -> Result<(), TraceError> {
        if self.end - self.start >= wanted {
            return Ok(());
        }
        if self.at_end {
            return self.report_if_empty();
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted && !self.at_end {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.at_end = true;
                    self.failure = Some(self.read_error(error));
                }
            }
        }
        self.report_if_empty()
    }

    /// Reports the failure that ended the input, once all bytes before it are consumed.
    fn report_if_empty(&mut self) -> Result<(), TraceError> {
        if self.start < self.end {
            return Ok(());
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Up to `count` bytes from here on, not consumed; fewer only at the end of the file.
    pub(crate) fn peek(&mut self, count: usize) -> Result<&[u8], TraceError> {
        let count = count.min(BUFFER_BYTES);
        self.fill(count)?;
        Ok(&self.buffer[self.start..self.end.min(self.start + count)])
    }

    /// Consumes `count` bytes that were peeked.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "only peeked bytes can be consumed");
        self.start += count;
        self.offset += count as u64;
    }

    /// Skips `count` bytes; returns how many the file still had.
    pub(crate) fn skip(&mut self, count: u64) -> Result<u64, TraceError> {
        let mut left = count;
        while left > 0 {
            let chunk = usize::try_from(left).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            let had = self.peek(chunk)?.len();
            if had == 0 {
                break;
            }
            self.consume(had);
            left -= had as u64;
        }
        Ok(count - left)
    }

    /// The next line without its end.
    pub(crate) fn next_line(&mut self) -> Result<NextLine<'_>, TraceError> {
        let mut searched = 0;
        loop {
            let waiting = &self.buffer[self.start..self.end];
            if let Some(found) = memchr::memchr(b'\n', &waiting[searched..]) {
                return Ok(self.take_line(searched + found, 1));
            }
            searched = waiting.len();
            if searched > MAX_LINE_BYTES {
                self.skip_line()?;
                return Ok(NextLine::TooLong);
            }
            if self.at_end {
                // After a failure a partial line is not returned, because its rest is missing.
                if let Some(failure) = self.failure.take() {
                    return Err(failure);
                }
                if searched == 0 {
                    return Ok(NextLine::End);
                }
                return Ok(self.take_line(searched, 0));
            }
            self.fill(searched + 1)?;
        }
    }

    fn take_line(&mut self, len: usize, newline: usize) -> NextLine<'_> {
        let from = self.start;
        self.line += 1;
        self.consume(len + newline);
        if len > MAX_LINE_BYTES {
            return NextLine::TooLong;
        }
        NextLine::Line(&self.buffer[from..from + len])
    }

    /// Passes over the rest of an overlong line.
    fn skip_line(&mut self) -> Result<(), TraceError> {
        self.line += 1;
        loop {
            let waiting = self.peek(BUFFER_BYTES)?;
            let len = waiting.len();
            if let Some(found) = memchr::memchr(b'\n', waiting) {
                self.consume(found + 1);
                return Ok(());
            }
            if len == 0 {
                return Ok(());
            }
            self.consume(len);
        }
    }

    /// `fault` as an error about the line read last.
    #[cold]
    pub(crate) fn bad_line(&self, fault: Fault) -> TraceError {
        TraceError::Malformed(Box::new(self.record(Position::Line(self.line), fault)))
    }

    /// `fault` as an error about byte `offset`.
    #[cold]
    pub(crate) fn bad_bytes(&self, offset: u64, fault: Fault) -> TraceError {
        TraceError::Malformed(Box::new(self.record(Position::Byte(offset), fault)))
    }

    /// The error that the file ends at byte `offset` where `expected` should be.
    #[cold]
    pub(crate) fn cut_short(
        &self,
        offset: u64,
        expected: &'static str,
        found: usize,
    ) -> TraceError {
        let found = format!("the end of the file after {found} bytes");
        let fault = Fault { expected, found };
        TraceError::Truncated(Box::new(self.record(Position::Byte(offset), fault)))
    }

    fn record(&self, position: Position, fault: Fault) -> BadRecord {
        let expected = fault.expected.to_owned();
        BadRecord { file: self.file.clone(), position, expected, found: fault.found }
    }
}

/// `reader` behind the decompressor that its first bytes ask for.
fn decompressed(mut reader: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = [0; 4];
    let mut have = 0;
    while have < magic.len() {
        match reader.read(&mut magic[have..]) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let whole = Cursor::new(magic).take(have as u64).chain(reader);
    match &magic[..have] {
        [0x1f, 0x8b, ..] => {
            let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
            Ok(Box::new(flate2::bufread::MultiGzDecoder::new(buffered)))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => Ok(Box::new(zstd::stream::read::Decoder::new(whole)?)),
        _ => Ok(Box::new(whole)),
    }
}
