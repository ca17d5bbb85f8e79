//! Requests that are dealt out, and answers of several devices as one.

use manylogs_block::{Completion, Extent, IoError, Payload, Request, Split};
use manylogs_plant::{self as plant, Bug};

/// Returns `request` moved to `extent`, with the content that `content` makes for it.
pub(crate) fn placed(
    request: &Request,
    extent: Extent,
    content: impl FnOnce(&Payload) -> Payload,
) -> Request {
    match request {
        Request::Read { .. } => Request::Read { extent },
        Request::Write { payload, fua, hint, .. } => {
            Request::Write { extent, payload: content(payload), fua: *fua, hint: *hint }
        }
        Request::WriteZeroes { fua, if_fast, .. } => {
            Request::WriteZeroes { extent, fua: *fua, if_fast: *if_fast }
        }
        Request::Discard { fua, .. } => Request::Discard { extent, fua: *fua },
        Request::Flush => Request::Flush,
    }
}

/// Joins `parts`, the answers to the parts of a request. Completes when all have ended: with the
/// content that `split` assembles if the request was a read, or with the first error.
pub(crate) fn join(split: Option<Split>, mut parts: Vec<Completion>) -> Completion {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    Completion::of_others(async move {
        let (mut read, mut failed) = (Vec::with_capacity(parts.len()), None::<IoError>);
        for part in parts {
            match part.await {
                Ok(payload) => read.push(payload),
                Err(error) => failed = failed.or(Some(error)),
            }
            if split.is_none() && plant::is(Bug::FirstMemberAnswers) {
                break;
            }
        }
        let content = |split: Split| split.assemble(read);
        failed.map_or_else(|| Ok(split.map(content).unwrap_or_default()), Err)
    })
}
