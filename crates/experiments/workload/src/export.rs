//! Traces for other programs, in the formats that [`crate::open`] reads.

mod binary;
mod encode;
mod text;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use crate::error::TraceError;
use crate::format::Format;
use crate::format::own::{RecordingInfo, RecordingWriter};
use crate::request::{TraceOp, TraceRequest};

use encode::{Encode, encoder};

/// Losses because a format cannot hold all of the written requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Requests left out because the format does not know their operation, by operation.
    pub left_out: [u64; TraceOp::ALL.len()],
    /// Requests left out because the format has no number for their length.
    pub too_long: u64,
    /// Requests written without their mark of force unit access.
    pub fua: u64,
    /// Requests written with an earlier time than theirs.
    pub earlier: u64,
    /// The most by which such a time is earlier, in nanoseconds.
    pub most_earlier_ns: u64,
    /// Requests written with another device number.
    pub renumbered: u64,
}

impl Losses {
    /// Each loss in words; empty if the file holds all of the trace.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        const NAMES: [&str; TraceOp::ALL.len()] =
            ["reads", "writes", "discards", "write-zeroes requests", "flushes"];
        let some = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let ops = self.left_out.iter().zip(NAMES);
        let mut reasons: Vec<String> =
            ops.filter_map(|(&count, name)| some(count, &format!("{name} are left out"))).collect();
        let earlier = format!(
            "requests have an earlier time, by {:.3} ms at most",
            self.most_earlier_ns as f64 / 1e6
        );
        let others = [
            (self.too_long, "requests are left out: they are too long"),
            (self.fua, "requests are no longer durable (FUA)"),
            (self.earlier, &*earlier),
            (self.renumbered, "requests have another device number"),
        ];
        reasons.extend(others.iter().filter_map(|&(count, what)| some(count, what)));
        reasons
    }
}

/// Writes requests in a format. Call [`finish`](Self::finish), or the file may be cut short.
pub struct TraceWriter<W: Write> {
    output: TraceOutput<W>,
    losses: Losses,
    records: u64,
}

enum TraceOutput<W: Write> {
    /// Our own format, which holds everything.
    Own(RecordingWriter<W>),
    Encoded {
        out: W,
        encoder: Box<dyn Encode + Send>,
        record: Vec<u8>,
    },
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file of this format.
    ///
    /// # Errors
    ///
    /// If the output cannot be written, or with [`io::ErrorKind::Unsupported`] if the format is
    /// only read (see [`Format::WRITTEN`]).
    pub fn new(format: Format, mut out: W) -> io::Result<Self> {
        let output = if format == Format::Manylogs {
            TraceOutput::Own(RecordingWriter::new(out, &RecordingInfo::default())?)
        } else {
            let encoder = encoder(format).ok_or(io::ErrorKind::Unsupported)?;
            out.write_all(encoder.head())?;
            TraceOutput::Encoded { out, encoder, record: Vec::new() }
        };
        Ok(Self { output, losses: Losses::default(), records: 0 })
    }

    /// Writes a request, or counts why it is left out.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn push(&mut self, request: &TraceRequest) -> io::Result<()> {
        match &mut self.output {
            TraceOutput::Own(writer) => writer.push(request)?,
            TraceOutput::Encoded { out, encoder, record } => {
                let holds = encoder.holds();
                if !holds.ops.contains(&request.op) {
                    self.losses.left_out[request.op as usize] += 1;
                    return Ok(());
                }
                if request.extent.len > holds.longest {
                    self.losses.too_long += 1;
                    return Ok(());
                }
                record.clear();
                let kept = encoder.encode(request, record);
                out.write_all(record)?;
                self.losses.fua += u64::from(request.fua && !holds.fua);
                self.losses.renumbered += u64::from(request.device != kept.device);
                let earlier = request.at.0.saturating_sub(kept.at.0);
                self.losses.earlier += u64::from(earlier > 0);
                self.losses.most_earlier_ns = self.losses.most_earlier_ns.max(earlier);
            }
        }
        self.records += 1;
        Ok(())
    }

    /// Requests written.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// The losses so far.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// Ends the file and gives the output back, flushed.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn finish(self) -> io::Result<W> {
        match self.output {
            TraceOutput::Own(writer) => writer.finish(),
            TraceOutput::Encoded { mut out, .. } => {
                out.flush()?;
                Ok(out)
            }
        }
    }
}

impl<W: Write> fmt::Debug for TraceWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { losses, records, .. } = self;
        let mut out = f.debug_struct("TraceWriter");
        out.field("losses", losses).field("records", records).finish_non_exhaustive()
    }
}

impl Format {
    /// The formats that can be written. The others need facts that requests do not have:
    /// performance counters of Windows, or threads of a telephone.
    pub const WRITTEN: [Self; 15] = [
        Self::Manylogs,
        Self::Blktrace,
        Self::Blkparse,
        Self::Msr,
        Self::Spc,
        Self::DiskSim,
        Self::Replay,
        Self::Vscsi1,
        Self::Vscsi2,
        Self::Alibaba,
        Self::Tencent,
        Self::FioIolog2,
        Self::FioIolog3,
        Self::Fiu,
        Self::Csv,
    ];

    /// The format that a file's name asks for by its extension: a format's own name, `iolog` for
    /// fio's version 3 and `vscsi` for version 1 of vSCSI; our own format for any other name.
    ///
    /// # Errors
    ///
    /// If the extension asks for compression, or for a format that is not written.
    pub fn of_output(path: &Path) -> Result<Self, TraceError> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let refuse = |why: String| Err(TraceError::Options(why.into()));
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("iolog") => Ok(Self::FioIolog3),
            Some("vscsi") => Ok(Self::Vscsi1),
            Some(packed @ ("zst" | "gz")) => refuse(format!(
                "{}: traces are written without compression: leave .{packed} out, and pack the \
                 file afterwards",
                path.display()
            )),
            Some(name) => match name.parse::<Self>() {
                Ok(format) if Self::WRITTEN.contains(&format) => Ok(format),
                Ok(format) => refuse(format!("{}: {format} traces are only read", path.display())),
                Err(_) => Ok(Self::Manylogs),
            },
            None => Ok(Self::Manylogs),
        }
    }
}

#[cfg(test)]
mod tests;
