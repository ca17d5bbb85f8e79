//! Reads: from a store if it has the newest version, else from home.

use std::pin::Pin;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Extent, IoError, IoResult, Payload, Request};
use manylogs_plant::{self as plant, Bug};

use crate::call::{Ask, Part, Reply};
use crate::home::at_home;
use crate::lender::LenderError;
use crate::locks::Use;
use crate::offload::Client;
use crate::table::Copies;
use crate::versions::Version;

/// A store that answers so often with less than it acknowledged has lost data.
const ATTEMPTS: u32 = 8;

type PartRead = Pin<Box<dyn Future<Output = Result<Payload, Wrong>>>>;

/// The newest content of a part of a range.
pub(crate) struct Newest {
    pub(crate) extent: Extent,
    /// Its version, and where it is; `None` if that is home.
    pub(crate) known: Option<(Version, Copies)>,
    pub(crate) content: Payload,
}

impl Newest {
    /// The content of these parts, one after the other.
    pub(crate) fn joined(parts: &[Self]) -> Payload {
        let mut content = Payload::default();
        parts.iter().for_each(|part| content.append(part.content.clone()));
        content
    }
}

/// A part that a store failed to read: that store may have others whole.
struct Failure {
    extent: Extent,
    store: usize,
    /// What the store says. A disk that was pulled says nothing of damage.
    error: IoError,
}

/// Why a part was not read.
enum Wrong {
    /// The store failed.
    Store(usize, IoError),
    /// The store does not have what it should have.
    Changed,
    /// The store did not answer, and the session with it has ended.
    Gone,
    /// The base volume failed.
    Home(IoError),
}

/// Why a read should be tried again, or has failed.
#[derive(Debug)]
pub(crate) enum Again {
    /// No store that has a part of it can be reached.
    Gone,
    /// The table changed meanwhile.
    Changed,
    /// The base volume failed.
    Home(IoError),
    /// All stores that have this part say that it is damaged, or there are none.
    Damaged(Extent),
    /// All stores that have this part failed, and this one did not say that it is damaged.
    Store(Extent, usize, IoError),
}

impl Client {
    pub(crate) fn read(self: &Rc<Self>, extent: Extent) -> Completion {
        let home = |part: &(Extent, Option<(Version, Copies)>)| {
            part.1.is_none_or(|(_, copies)| copies.clean)
        };
        // Home has the newest version now, and the base gets the request before this returns.
        let table = self.table.borrow();
        let is_home = !table.is_offloaded(extent) || table.lookup(extent).iter().all(home);
        drop(table);
        if is_home {
            return self.home.submit(Request::Read { extent: at_home(extent) });
        }
        let client = Rc::clone(self);
        self.answer(async move { client.read_patiently(extent).await })
    }

    async fn read_patiently(self: &Rc<Self>, extent: Extent) -> IoResult {
        let (mut deadline, mut attempts) = (None, 0);
        loop {
            let changed = self.changed.wait();
            let locked = self.locks.take(extent, Use::Read).await;
            let again = match self.read_newest(extent).await {
                Ok(parts) => return Ok(Newest::joined(&parts)),
                Err(again) => again,
            };
            drop(locked);
            if self.fenced.get() {
                return Err(IoError::Gone);
            }
            match again {
                Again::Home(error) => return Err(error),
                Again::Damaged(extent) => return Err(IoError::Medium { extent }),
                Again::Store(extent, ..) => return Err(IoError::Transient { extent }),
                Again::Changed => {
                    attempts += 1;
                    if attempts >= ATTEMPTS {
                        return Err(IoError::Medium { extent });
                    }
                }
                Again::Gone => {
                    let now = self.runtime.now();
                    let deadline = *deadline.get_or_insert(now + self.options.patience);
                    if now >= deadline {
                        return Err(IoError::Transient { extent });
                    }
                    self.runtime.within(deadline.since(now), changed).await;
                }
            }
        }
    }

    /// The newest content of a range that is locked, by parts.
    pub(crate) async fn read_newest(self: &Rc<Self>, extent: Extent) -> Result<Vec<Newest>, Again> {
        let mut failed: Vec<Failure> = Vec::new();
        loop {
            let parts = self.table.borrow().lookup(extent);
            let mut reads = Vec::with_capacity(parts.len());
            for (part, known) in parts {
                reads.push((part, known, self.read_part(part, known, &failed)?));
            }
            let (mut found, mut result, before) = (Vec::new(), Ok(()), failed.len());
            let mut gone = false;
            for (extent, known, read) in reads {
                match read.await {
                    Ok(content) => found.push(Newest { extent, known, content }),
                    Err(Wrong::Store(store, error)) => {
                        failed.push(Failure { extent, store, error });
                    }
                    Err(Wrong::Home(error)) => result = Err(Again::Home(error)),
                    Err(Wrong::Changed) => result = result.and(Err(Again::Changed)),
                    Err(Wrong::Gone) => gone = true,
                }
            }
            result?;
            // Another round: other stores may have the parts.
            if failed.len() == before && !gone {
                return Ok(found);
            }
        }
    }

    /// Begins to read a part, from a store that has not failed to read it. If all have, it is
    /// damaged only if each says so: the next attempt may find it whole otherwise.
    fn read_part(
        self: &Rc<Self>,
        part: Extent,
        known: Option<(Version, Copies)>,
        failed: &[Failure],
    ) -> Result<PartRead, Again> {
        let Some((version, copies)) = known.filter(|(_, copies)| !copies.clean) else {
            let read = self.home.submit(Request::Read { extent: at_home(part) });
            return Ok(Box::pin(async move { read.await.map_err(Wrong::Home) }));
        };
        let here = failed.iter().filter(|failure| failure.extent.overlaps(part));
        let bad = here.clone().fold(0_u32, |bad, failure| bad | 1 << failure.store);
        let has = |store: &usize| copies.stores >> store & 1 == 1 && bad >> store & 1 == 0;
        let mut stores: Vec<usize> = (0..self.peers.len()).filter(has).collect();
        if stores.is_empty() {
            let mut unclear = here.filter(|failure| !failure.error.is_damage());
            return Err(match unclear.next().filter(|_| !plant::is(Bug::FailureIsDamage)) {
                None => Again::Damaged(part),
                Some(Failure { store, error, .. }) => Again::Store(part, *store, error.clone()),
            });
        }
        stores.retain(|store| self.peers[*store].is_live());
        let Some(store) = stores.into_iter().min_by_key(|store| self.key(*store)) else {
            return Err(Again::Gone);
        };
        let answer = self.call(store, Ask::Read { extent: part });
        let read = async move {
            match answer.await {
                Ok(Reply::Found(parts)) => whole(parts, version).ok_or(Wrong::Changed),
                Ok(_) => Err(Wrong::Changed),
                Err(LenderError::Failed(error)) => Err(Wrong::Store(store, error)),
                Err(_) => Err(Wrong::Gone),
            }
        };
        Ok(Box::pin(read))
    }
}

/// The content, if a store has all parts in `version` or a newer one, which is of a write that
/// failed.
fn whole(parts: Vec<Part>, version: Version) -> Option<Payload> {
    let mut content = Payload::default();
    for part in parts {
        content.append(part.stored.filter(|(found, _)| *found >= version)?.1);
    }
    Some(content)
}
