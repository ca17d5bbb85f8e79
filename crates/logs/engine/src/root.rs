//! Finding the newest root, and changing it in both slots.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Payload, Request};
use manylogs_plant::{self as plant, Bug};

use manylogs_logstore::VolumeId;
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::Device;

use crate::member::Member;
use crate::phase::Phase;
use crate::system::System;

/// A place for one of the two copies of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootSlot {
    /// The member that it is on.
    pub device: Device,
    /// Where it is there.
    pub place: Extent,
}

impl RootSlot {
    /// Both slots on the first member.
    #[must_use]
    pub fn on_first(places: [Extent; 2]) -> [Self; 2] {
        places.map(|place| Self { device: Device::default(), place })
    }
}

/// Changes the root, durably in both slots; the slot without the newest root is written first.
/// Concurrent changes take turns.
///
/// # Errors
/// If one of the slots cannot be written. A crash may then find the old root or the new one, so
/// the store takes no more entries.
pub async fn update_root<S: System>(
    system: &S,
    phase: Phase,
    change: impl FnOnce(&mut Root),
) -> Result<(), IoError> {
    let engine = system.engine();
    let lock = engine.with_store(|store| store.root_lock());
    let _turn = lock.take().await;
    let (root, slots) = engine.with_store(|store| store.next_root(change));
    for slot in slots {
        if let Err(error) = write_slot(system, phase, &root, slot).await {
            if !plant::is(Bug::RootHalfWritten) {
                engine.with_store(|store| store.fail_for(&error, "the root cannot be written"));
                engine.notify_progress();
            }
            return Err(error);
        }
        engine.with_store(|store| store.root_written(slot));
    }
    engine.with_store(|store| store.root_changed(root));
    Ok(())
}

/// Writes the root to a slot, durably. If the slot's member is gone and the system goes on without
/// it, the slot moves to another place.
async fn write_slot<S: System>(
    system: &S,
    phase: Phase,
    root: &Root,
    slot: usize,
) -> Result<(), IoError> {
    let engine = system.engine();
    let volume = engine.with_store(|store| store.volume());
    loop {
        let RootSlot { device, place } = system.root_slots()[slot];
        let written = write_twice(engine.members.of(device), phase, root.write_to(place, volume));
        match written.await {
            // A record that failed may have noticed first that the member is gone.
            Err(IoError::Gone)
                if engine.members.of(device).is_gone() || lose_member(system, device) => {}
            result => return result,
        }
    }
}

/// Notes that a member is gone and takes its logs out of use. False if the system does not go on
/// without it, or knew already.
pub fn lose_member<S: System>(system: &S, device: Device) -> bool {
    let engine = system.engine();
    let member = engine.members.of(device);
    if member.is_gone() || !system.goes_on_without(device) {
        return false;
    }
    member.set_gone();
    engine.with_store(|store| store.retire_all_on(device));
    engine.notify_progress();
    true
}

/// Writes a second time if the first write fails: drives replace a bad sector when it is written
/// again.
///
/// # Errors
/// Those of the device.
pub async fn write_twice(member: &Member, phase: Phase, write: Request) -> Result<(), IoError> {
    match member.submit(phase, write.clone()).await {
        Err(error) if error.is_local() => member.submit(phase, write).await.map(drop),
        result => result.map(drop),
    }
}

/// Result of reading all places of the root.
#[derive(Clone, Debug)]
pub struct FoundRoot {
    /// The newest whole root and the index of its place; `None` if no root is whole.
    pub newest: Option<(Root, usize)>,
    /// How many places hold no whole root.
    pub damaged: u32,
}

/// Writes a root to one of its slots, durably.
///
/// # Errors
/// Those of the device.
pub async fn write_root(
    member: &Member,
    phase: Phase,
    root: &Root,
    volume: VolumeId,
    place: Extent,
) -> Result<(), IoError> {
    member.submit(phase, root.write_to(place, volume)).await.map(drop)
}

/// Reads all places that may hold a root of `volume`, which has `logs` logs: both slots, and places
/// that a slot may have had before.
///
/// # Errors
/// If a slot cannot be read, and the medium is not at fault: see [`read_copy`].
pub async fn find_root(
    devices: &[Rc<dyn BlockDevice>],
    places: &[RootSlot],
    volume: VolumeId,
    logs: usize,
) -> Result<FoundRoot, IoError> {
    let mut found = FoundRoot { newest: None, damaged: 0 };
    for (slot, &RootSlot { device, place }) in places.iter().enumerate() {
        let device = &devices[usize::from(device.0)];
        let bytes = read_copy(device, place).await?.ok().and_then(|content| content.to_bytes());
        let root = bytes.and_then(|bytes| Root::decode(&bytes, volume));
        match root.filter(|root| root.used.covers(logs)) {
            None => found.damaged += 1,
            Some(root) => {
                let newest = found.newest.as_ref().map(|(newest, _)| newest.generation);
                if newest.is_none_or(|newest| root.generation > newest) {
                    found.newest = Some((root, slot));
                }
            }
        }
    }
    Ok(found)
}

/// Reads one of two copies of a structure. The inner error says that the medium has lost this copy,
/// so the other one counts. It takes two medium errors in a row.
///
/// # Errors
/// If the copy cannot be read for another reason. The copy may be whole and the newer one, so the
/// other copy must not be used in its place.
pub async fn read_copy(
    device: &Rc<dyn BlockDevice>,
    place: Extent,
) -> Result<Result<Payload, IoError>, IoError> {
    let read = || device.submit(Request::Read { extent: place });
    let mut result = read().await;
    if matches!(result, Err(IoError::Medium { .. })) {
        result = read().await;
    }
    match result {
        Ok(content) => Ok(Ok(content)),
        Err(error @ IoError::Medium { .. }) => Ok(Err(error)),
        Err(error) if plant::is(Bug::UnreadCopyIsDamaged) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}
