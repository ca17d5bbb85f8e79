//! A store that serves clients: it does each call once, and only calls of the newest session of a
//! base volume.
//!
//! The store keeps the list of base volumes that it serves in itself, in an address space that no
//! base volume has. The base volume with space `n` has the sector `n` there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload, SECTOR_BYTES, Sectors, Signal, to_usize};
use manylogs_logstore::Space;
use manylogs_plant::{self as plant, Bug};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::call::{Ask, BaseId, Call, Opening, Part, Reply, Session, StoreId};
use crate::lender::{Answer, DiskLoad, Lender, LenderError, Load};
use crate::store::CircularStore;
use crate::versions::{Range, Version};

/// The space that holds the owners of the other spaces.
const OWNERS: Space = Space(0x7fff);
const MAGIC: [u8; 8] = *b"EVOWNER1";
/// Calls that overtake one another by more than this end their session.
const AHEAD: u64 = 1 << 16;

/// A store that serves clients. Clones are the same.
#[derive(Clone)]
pub struct Lending(Rc<Inner>);

struct Inner {
    store: CircularStore,
    disk: Option<Rc<dyn DiskLoad>>,
    owners: RefCell<BTreeMap<BaseId, Owner>>,
    /// The most that the store holds of one base volume.
    most_each: Cell<Sectors>,
    /// Held by a claim, so that only one runs.
    claiming: manylogs_block::TaskLock,
}

/// A base volume that the store has, or had, data of.
#[derive(Debug)]
struct Owner {
    space: Space,
    /// The newest durable session.
    session: Session,
    /// Version of the owner's sector in [`OWNERS`].
    written: Version,
    /// The calls of the session, if the store still serves it.
    calls: Option<Calls>,
}

/// The calls of a session that have arrived.
#[derive(Debug, Default)]
struct Calls {
    /// All calls with smaller numbers have arrived.
    below: u64,
    beyond: BTreeSet<u64>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawOwner {
    magic: [u8; 8],
    base: BaseId,
    incarnation: U32,
    session: U32,
    token: U64,
}

impl Calls {
    /// Notes that a call arrives. An error if it arrived before, or is too far ahead.
    fn arrives(&mut self, number: u64) -> Result<(), LenderError> {
        let twice = number < self.below || self.beyond.contains(&number);
        if twice && !plant::is(Bug::CallDoneTwice) {
            return Err(LenderError::Repeated);
        }
        if number > self.below + AHEAD {
            return Err(LenderError::NoSession);
        }
        self.beyond.insert(number);
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
        Ok(())
    }
}

impl Lending {
    /// Serves clients from `store`. They are told how busy its disk is, which `disk` knows.
    ///
    /// # Errors
    /// If the store's list of owners cannot be read.
    pub async fn open(
        store: CircularStore,
        disk: Option<Rc<dyn DiskLoad>>,
    ) -> Result<Self, IoError> {
        let mut owners = BTreeMap::new();
        for Range { extent, version } in store.ranges(OWNERS) {
            for found in store.read(OWNERS, extent).await? {
                let bytes = found.content.and_then(|content| content.to_bytes());
                let raw = bytes.as_deref().and_then(|b| RawOwner::read_from_prefix(b).ok());
                let Some((raw, _)) = raw.filter(|(raw, _)| raw.magic == MAGIC) else {
                    return Err(IoError::Checksum { extent });
                };
                let space = Space(manylogs_block::narrow(found.extent.start.0));
                let opening =
                    Opening { incarnation: raw.incarnation.get(), token: raw.token.get() };
                let session = Session { opening, number: raw.session.get() };
                let owner = Owner { space, session, written: version, calls: None };
                owners.insert(raw.base, owner);
            }
        }
        let (owners, claiming) = (RefCell::new(owners), manylogs_block::TaskLock::default());
        let most_each = Cell::new(Sectors(u64::MAX));
        Ok(Self(Rc::new(Inner { store, disk, owners, most_each, claiming })))
    }

    /// Bounds what the store holds of each base volume, from now on. A write beyond that is refused
    /// as one to a full store ([`IoError::NoSpace`]), so that its client turns elsewhere, or home.
    /// What is held stays, however little the bound is, and can be deleted and written anew. The
    /// bound is not on the disk. Without a call there is none.
    pub fn bound_each(&self, most: Sectors) {
        self.0.most_each.set(most);
    }

    /// The most that the store holds of one base volume: see [`Lending::bound_each`].
    #[must_use]
    pub fn most_each(&self) -> Sectors {
        self.0.most_each.get()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &CircularStore {
        &self.0.store
    }

    /// What the store holds of a base volume.
    #[must_use]
    pub fn held(&self, base: BaseId) -> Vec<Range> {
        let space = self.0.owners.borrow().get(&base).map(|owner| owner.space);
        space.map(|space| self.0.store.ranges(space)).unwrap_or_default()
    }

    /// Base volumes that the store holds data of, and how much.
    #[must_use]
    pub fn clients(&self) -> Vec<(BaseId, Sectors)> {
        let owners = self.0.owners.borrow();
        let held = |(base, owner): (&BaseId, &Owner)| (*base, self.0.store.held(owner.space));
        owners.iter().map(held).filter(|(_, held)| held.0 > 0).collect()
    }

    /// Base volumes that the store knows, with their spaces and newest sessions.
    pub(crate) fn owners(&self) -> Vec<(BaseId, Space, Session)> {
        let owners = self.0.owners.borrow();
        owners.iter().map(|(base, owner)| (*base, owner.space, owner.session)).collect()
    }

    /// Begins a session: see [`Ask::Claim`].
    async fn claim(
        self,
        base: BaseId,
        session: Session,
        lineage: Vec<Opening>,
    ) -> Result<Reply, LenderError> {
        let _turn = self.0.claiming.take().await;
        let (space, written) = self.admit(base, session, &lineage)?;
        let written = Version(written.0 + 1);
        let raw = RawOwner {
            magic: MAGIC,
            base,
            incarnation: U32::new(session.opening.incarnation),
            session: U32::new(session.number),
            token: U64::new(session.opening.token),
        };
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(to_usize(SECTOR_BYTES), 0);
        let place = Extent::new(space.0.into(), 1);
        // When this is durable, so is all that earlier sessions stored or deleted.
        self.0.store.write_first(OWNERS, place, written, Payload::bytes(bytes)).await?;
        let owner = Owner { space, session, written, calls: Some(Calls::default()) };
        self.0.owners.borrow_mut().insert(base, owner);
        Ok(Reply::Held(self.0.store.ranges(space)))
    }

    /// Ends the earlier session and returns the space of the base volume and the version of its
    /// sector. An error if the session may not begin.
    fn admit(
        &self,
        base: BaseId,
        session: Session,
        lineage: &[Opening],
    ) -> Result<(Space, Version), LenderError> {
        let mut owners = self.0.owners.borrow_mut();
        let Some(owner) = owners.get_mut(&base) else {
            let used: BTreeSet<u16> = owners.values().map(|owner| owner.space.0).collect();
            let is_free = |space: &u16| !used.contains(space) || plant::is(Bug::SpaceReused);
            let free = (0..OWNERS.0).find(is_free);
            let full = IoError::ReadOnly { reason: "the store has no number for a base volume" };
            return free.map(|space| (Space(space), Version(0))).ok_or(full.into());
        };
        let (known, new) = (owner.session, session);
        if known.opening == new.opening {
            if new.number <= known.number {
                return Err(LenderError::NoSession);
            }
        } else {
            let same = |old: &Opening| match plant::is(Bug::TokenIgnored) {
                true => old.incarnation == known.opening.incarnation,
                false => *old == known.opening,
            };
            let older = new.opening.incarnation < known.opening.incarnation;
            let accepts = match older {
                true => plant::is(Bug::OlderClaimAccepted),
                false => lineage.iter().any(same),
            };
            if !accepts {
                return Err(LenderError::Foreign);
            }
        }
        if !plant::is(Bug::OldSessionServed) {
            owner.calls = None;
        }
        Ok((owner.space, owner.written))
    }

    fn serves(&self, base: BaseId, session: Session) -> bool {
        let owners = self.0.owners.borrow();
        let owner = owners.get(&base).filter(|owner| owner.session == session);
        owner.is_some_and(|owner| owner.calls.is_some()) || plant::is(Bug::OldSessionServed)
    }

    /// Notes the call and returns the space of its base volume. An error if the call is not to be
    /// done.
    fn arrives(&self, call: &Call) -> Result<Space, LenderError> {
        let mut owners = self.0.owners.borrow_mut();
        let owner = owners.get_mut(&call.base).ok_or(LenderError::NoSession)?;
        if plant::is(Bug::OldSessionServed) && owner.session != call.session {
            return Ok(owner.space);
        }
        let calls = owner.calls.as_mut().filter(|_| owner.session == call.session);
        calls.ok_or(LenderError::NoSession)?.arrives(call.number)?;
        Ok(owner.space)
    }

    /// Does a call. Its changes are on their way when this returns.
    fn serve(&self, call: Call) -> Answer<Reply> {
        if let Ask::Claim { lineage } = call.ask {
            return Box::pin(self.clone().claim(call.base, call.session, lineage));
        }
        let space = match self.arrives(&call) {
            Ok(space) => space,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        match call.ask {
            Ask::Write { extent, version, content } => self.write(space, extent, version, content),
            Ask::Delete { extent, version } => {
                let (lending, base, session) = (self.clone(), call.base, call.session);
                Box::pin(async move {
                    // The deletion may wait for room. Meanwhile another session may begin, whose
                    // claim is answered with the versions that this would delete.
                    let still = || lending.serves(base, session);
                    let deleted = lending.0.store.delete_if(space, extent, version, still);
                    match deleted.await {
                        Err(IoError::Gone) => Err(LenderError::NoSession),
                        done => Ok(done.map(|()| Reply::Done)?),
                    }
                })
            }
            Ask::Read { extent } => self.read(space, extent),
            Ask::Claim { .. } => unreachable!("a claim is served above"),
        }
    }

    fn write(
        &self,
        space: Space,
        extent: Extent,
        version: Version,
        content: Option<Payload>,
    ) -> Answer<Reply> {
        let mut held = self.0.store.versions(space, extent).into_iter();
        let newer = held.any(|range| range.version > version);
        if newer && !plant::is(Bug::OlderVersionTaken) {
            return Box::pin(std::future::ready(Err(LenderError::Newer)));
        }
        if !self.has_share_for(space, extent) {
            let full = IoError::NoSpace { extent };
            return Box::pin(std::future::ready(Err(full.into())));
        }
        let written = self.0.store.write(space, extent, version, content);
        Box::pin(async move {
            written.await?;
            Ok(Reply::Done)
        })
    }

    /// Whether the base volume stays within its bound with a version of `extent`. A version of
    /// what is held takes no more of it, even if the bound has become less than that.
    fn has_share_for(&self, space: Space, extent: Extent) -> bool {
        let (held, then) = (self.0.store.held(space), self.0.store.held_with(space, extent));
        then <= self.0.most_each.get().max(held) || plant::is(Bug::ClientUnbounded)
    }

    fn read(&self, space: Space, extent: Extent) -> Answer<Reply> {
        let mut parts: Vec<(Extent, Option<Version>)> = Vec::new();
        let mut next = extent.start;
        for Range { extent, version } in self.0.store.versions(space, extent) {
            parts.push((Extent::between(next, extent.start), None));
            parts.push((extent, Some(version)));
            next = extent.end();
        }
        parts.push((Extent::between(next, extent.end()), None));
        parts.retain(|(part, _)| !part.is_empty());
        let read = |(extent, version): (Extent, Option<Version>)| {
            (extent, version.map(|version| (version, self.0.store.read(space, extent))))
        };
        let reads: Vec<_> = parts.into_iter().map(read).collect();
        Box::pin(async move {
            let (mut found, mut result) = (Vec::with_capacity(reads.len()), Ok(()));
            for (extent, read) in reads {
                let Some((version, read)) = read else {
                    found.push(Part { extent, stored: None });
                    continue;
                };
                let mut content = Payload::default();
                // Every read is awaited: until it ends it keeps its log from a reset.
                match read.await {
                    Ok(parts) => parts.into_iter().for_each(|part| {
                        let zeroes = || Payload::zeroes(part.extent.len);
                        content.append(part.content.clone().unwrap_or_else(zeroes));
                    }),
                    Err(error) => result = result.and(Err(error)),
                }
                found.push(Part { extent, stored: Some((version, content)) });
            }
            result?;
            Ok(Reply::Found(found))
        })
    }
}

impl Lender for Lending {
    fn id(&self) -> StoreId {
        self.0.store.id()
    }

    fn longest_write(&self) -> Sectors {
        self.0.store.longest_write()
    }

    fn call(&self, call: Call) -> Answer<Reply> {
        self.serve(call)
    }

    fn load(&self) -> Load {
        self.0.disk.as_ref().map(|disk| disk.load()).unwrap_or_default()
    }

    fn progress(&self) -> &Signal {
        self.0.store.progress()
    }
}

impl std::fmt::Debug for Lending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let owners = self.0.owners.borrow();
        f.debug_struct("Lending").field("store", &self.0.store).field("owners", &owners).finish()
    }
}
