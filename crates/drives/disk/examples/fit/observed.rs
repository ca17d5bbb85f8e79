//! The recorded requests with their absolute times.

use manylogs_block::Extent;
use manylogs_disk::validate::Record;

use crate::phase::Ends;

/// One request at its measured time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Position in the recording, from 1.
    pub number: usize,
    pub write: bool,
    pub extent: Extent,
    /// Time since the start of the recording.
    pub issue_us: f64,
    pub completion_us: f64,
    /// Time since the previous request completed.
    pub idle_us: f64,
}

/// All requests of a recording.
pub(crate) struct Observed {
    pub requests: Vec<Request>,
}

impl Observed {
    pub(crate) fn new(records: &[Record]) -> Self {
        let (mut clock_us, mut idle_us) = (0.0, 0.0);
        let mut requests = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            let completion_us = clock_us + record.service.as_micros_f64();
            requests.push(Request {
                number: index + 1,
                write: record.write,
                extent: record.extent,
                issue_us: clock_us,
                completion_us,
                idle_us,
            });
            idle_us = record.think.as_micros_f64();
            clock_us = completion_us + idle_us;
        }
        Self { requests }
    }

    /// The requests that the fit may use.
    pub(crate) fn odd(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.number % 2 == 1)
    }

    /// Moves completions back to the moment at which the last sector passed the head.
    pub(crate) fn subtract_ends(&mut self, ends: &Ends) {
        for request in &mut self.requests {
            request.completion_us -= ends.of(request);
        }
    }
}
