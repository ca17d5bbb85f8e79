//! Traces for other programs: CSV with named columns, which [`crate::open`] reads as well.

use std::io::{self, Write};

use crate::request::{TraceOp, TraceRequest};

/// Writes requests as CSV: `t_ns,op,lba,sectors,fua,dev`, addresses and lengths in sectors of 512
/// bytes. Nothing that a request says is lost.
#[derive(Debug)]
pub struct CsvWriter<W> {
    out: W,
    records: u64,
}

impl<W: Write> CsvWriter<W> {
    /// Begins with the line of names.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "t_ns,op,lba,sectors,fua,dev")?;
        Ok(Self { out, records: 0 })
    }

    /// Writes a request.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn push(&mut self, request: &TraceRequest) -> io::Result<()> {
        let TraceRequest { at, extent, device, .. } = request;
        let op = match request.op {
            TraceOp::Read => 'R',
            TraceOp::Write => 'W',
            TraceOp::Discard => 'D',
            TraceOp::WriteZeroes => 'Z',
            TraceOp::Flush => 'F',
        };
        let (start, len, fua) = (extent.start.0, extent.len.0, u8::from(request.fua));
        writeln!(self.out, "{},{op},{start},{len},{fua},{device}", at.0)?;
        self.records += 1;
        Ok(())
    }

    /// Requests written.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Gives the output back, flushed.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use manylogs_block::{Extent, Time};

    use super::*;
    use crate::request::TraceSource;
    use crate::{OpenOptions, open_reader};

    #[test]
    fn what_is_written_reads_back_the_same() {
        let extent = Extent::new(77, 9);
        let request = |ns: u64, op| TraceRequest {
            at: Time(ns),
            op,
            extent: if op == TraceOp::Flush { Extent::default() } else { extent },
            fua: op == TraceOp::Write,
            device: 0,
        };
        let requests: Vec<TraceRequest> =
            TraceOp::ALL.iter().zip(0..).map(|(&op, at)| request(at * 1_001, op)).collect();
        let mut writer = CsvWriter::new(Vec::new()).unwrap();
        requests.iter().for_each(|request| writer.push(request).unwrap());
        assert_eq!(writer.records(), 5);
        let text = writer.finish().unwrap();
        let mut source =
            open_reader(Path::new("t.csv"), Cursor::new(text), &OpenOptions::default()).unwrap();
        let found: Vec<TraceRequest> =
            std::iter::from_fn(|| source.next_request()).map(Result::unwrap).collect();
        assert_eq!(found, requests);
    }
}
