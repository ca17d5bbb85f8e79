//! Requests that wait for a member until the submitting task pauses, as in Linux' plug. Requests
//! that follow one another on the member go there as one.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Completer, Completion, Handle, Payload, Request, Sectors, completion,
};

/// Longest request that merging makes, as on most disks.
const LONGEST: Sectors = Sectors(2560);

/// A member with the requests that wait for it.
pub(crate) struct Plug {
    pub(crate) member: Rc<dyn BlockDevice>,
    waiting: RefCell<Vec<Waiting>>,
}

struct Waiting {
    request: Request,
    urgent: bool,
    /// Length and completer of each merged request, in order.
    asked: Vec<(Sectors, Completer)>,
}

impl Plug {
    pub(crate) fn new(member: Rc<dyn BlockDevice>) -> Self {
        Self { member, waiting: RefCell::default() }
    }

    /// Queues a request, which must have an extent, or merges it with the last one.
    pub(crate) fn push(&self, request: Request, urgent: bool) -> Completion {
        let (completer, completion) = completion();
        let len = request.extent().unwrap_or_default().len;
        let mut waiting = self.waiting.borrow_mut();
        if let Some(last) = waiting.last_mut().filter(|last| last.urgent == urgent)
            && last.merge(&request)
        {
            last.asked.push((len, completer));
            return completion;
        }
        waiting.push(Waiting { request, urgent, asked: vec![(len, completer)] });
        completion
    }

    /// Submits all waiting requests to the member.
    pub(crate) fn unplug(&self, runtime: &Handle) {
        for Waiting { request, urgent, asked } in self.waiting.take() {
            let reads = matches!(request, Request::Read { .. });
            let answer = match urgent {
                true => self.member.submit_urgent(request),
                false => self.member.submit(request),
            };
            runtime.spawn(async move {
                let (result, mut skip) = (answer.await, Sectors(0));
                for (len, completer) in asked {
                    let part = |content: &Payload| content.slice(skip, len);
                    let part = result.as_ref().map(|content| match reads {
                        true => part(content),
                        false => Payload::default(),
                    });
                    completer.complete(part.map_err(Clone::clone));
                    skip += len;
                }
            });
        }
    }
}

impl Waiting {
    /// Merges `next` into this request if it continues it and is of the same kind.
    fn merge(&mut self, next: &Request) -> bool {
        let (Some(own), Some(other)) = (self.request.extent(), next.extent()) else { return false };
        if own.end() != other.start || own.len + other.len > LONGEST {
            return false;
        }
        match (&mut self.request, next) {
            (Request::Read { extent }, Request::Read { .. }) => extent.len += other.len,
            (
                Request::Write { extent, payload, fua, hint },
                Request::Write { payload: more, fua: as_durable, hint: as_hinted, .. },
            ) if fua == as_durable && hint == as_hinted => {
                extent.len += other.len;
                payload.append(more.clone());
            }
            _ => return false,
        }
        true
    }
}
