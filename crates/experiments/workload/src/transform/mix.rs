//! Several tenants on one drive, each in its own slice.

use manylogs_block::{Extent, Lba};

use crate::error::TraceError;
use crate::merge::Merge;
use crate::request::{BoxedSource, SourceCounts, TraceRequest, TraceSource};

/// A tenant of a mix: a trace and its slice of the drive.
pub struct Tenant {
    /// The requests; their addresses begin at zero.
    pub source: BoxedSource,
    /// The part of the drive that is the tenant's.
    pub slice: Extent,
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("slice", &self.slice).finish_non_exhaustive()
    }
}

/// Tenants merged by time; a request's device is its tenant's number, counted from zero.
#[derive(Debug)]
pub struct Mix {
    merged: Merge,
}

impl Mix {
    /// Mixes `tenants`, all of which start at the same instant.
    ///
    /// A request outside of its tenant's slice is an error when it is read: fit the trace to the
    /// slice's length first.
    ///
    /// # Errors
    ///
    /// If slices overlap, or the first request of a tenant cannot be read.
    pub fn new(tenants: Vec<Tenant>) -> Result<Self, TraceError> {
        for (index, tenant) in tenants.iter().enumerate() {
            let clash =
                tenants[..index].iter().position(|other| other.slice.overlaps(tenant.slice));
            if let Some(other) = clash {
                let message = format!("the slices of tenants {other} and {index} overlap");
                return Err(TraceError::Options(message.into()));
            }
        }
        let sources = tenants.into_iter().zip(0_u32..).map(|(tenant, number)| -> BoxedSource {
            Box::new(InSlice { source: tenant.source, slice: tenant.slice, number, failed: false })
        });
        Ok(Self { merged: Merge::new(sources.collect())? })
    }
}

impl TraceSource for Mix {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        self.merged.next_request()
    }

    fn counts(&self) -> SourceCounts {
        self.merged.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.merged.progress()
    }
}

/// One tenant's requests at their place on the drive.
struct InSlice {
    source: BoxedSource,
    slice: Extent,
    number: u32,
    failed: bool,
}

impl TraceSource for InSlice {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if self.failed {
            return None;
        }
        let mut request = match self.source.next_request()? {
            Ok(request) => request,
            Err(error) => return Some(Err(error)),
        };
        request.device = self.number;
        if request.extent.is_empty() {
            return Some(Ok(request));
        }
        if request.extent.end().0 > self.slice.len.0 {
            self.failed = true;
            let (tenant, extent, slice) = (self.number, request.extent, self.slice);
            let message = format!(
                "tenant {tenant}: {extent} lies outside its slice {slice}: fit the trace to it"
            );
            return Some(Err(TraceError::Options(message.into())));
        }
        request.extent.start = Lba(request.extent.start.0 + self.slice.start.0);
        Some(Ok(request))
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}
